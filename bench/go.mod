module github.com/schedulerd/schedulerd/bench

go 1.26.0

require (
	github.com/gorhill/cronexpr v0.0.0-20180427100037-88b0669f7d75
	github.com/hashicorp/cronexpr v1.1.3
	github.com/netresearch/go-cron v0.9.1
	github.com/robfig/cron/v3 v3.0.1
	github.com/schedulerd/schedulerd v0.0.0
)

require github.com/stretchr/testify v1.12.1 // indirect

replace github.com/schedulerd/schedulerd => ../
