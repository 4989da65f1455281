// Package measure is the harness of the benchmarks: it compares programs side by side on one machine.
//
//	sample.go   what one program measures about itself: CPU, allocations, latencies
//	child.go    programs run in processes of their own, so that memory and CPU are theirs alone
//	rounds.go   the rounds: interleaved, noisy ones left out, medians and spreads
//	report.go   tables and goals, as JSON and Markdown
//
// What is compared are medians of rounds that were interleaved: A, B, A, B, ... CPU comes from getrusage and does not count
// neighbours, though it grows with them, as caches are shared. How busy the neighbours were comes from /proc/stat: rounds in
// which they used more than half a core are left out as long as three others remain, and the table says so if they do not.
package measure
