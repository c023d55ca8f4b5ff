module github.com/keepwell-go/keepwell/internal/compare

go 1.26.0

require (
	github.com/alexliesenfeld/health v0.8.0
	github.com/hellofresh/health-go/v5 v5.5.4
	github.com/jackc/puddle/v2 v2.2.3
	github.com/keepwell-go/keepwell v0.1.0
	github.com/maypok86/otter/v2 v2.4.0
	github.com/robfig/cron/v3 v3.0.1
	go.uber.org/zap v1.28.0
	golang.org/x/sync v0.25.0
	resenje.org/singleflight v0.4.3
)

require (
	github.com/benbjohnson/clock v1.3.5 // indirect
	go.opentelemetry.io/otel v1.35.0 // indirect
	go.opentelemetry.io/otel/trace v1.35.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
)

replace github.com/keepwell-go/keepwell => ../../
