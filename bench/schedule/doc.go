// Package schedule measures next fire times against other engines in one run,
// and checks that they agree where their dialects do.
//
//	cd bench && go test ./schedule -run Goals -v          # ratios, and whether the goals are met
//	cd bench && go test ./schedule -run xxx -bench . -benchmem
//
// Engines: gorhill/cronexpr is the calendar engine that schedulerd itself asks
// when it compiles; here it is asked at every fire time, as its users do.
// hashicorp/cronexpr is its fork, robfig/cron the most used one,
// netresearch/go-cron the fork of that which is kept up.
package schedule
