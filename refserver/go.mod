module github.com/keepwell-go/keepwell/refserver

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	github.com/benbjohnson/clock v1.3.5
	github.com/keepwell-go/keepwell v0.1.0
	go.uber.org/zap v1.28.0
	golang.org/x/sync v0.25.0
	golang.org/x/sys v0.50.0
	golang.org/x/term v0.48.0
	pgregory.net/rapid v1.3.0
)

require go.uber.org/multierr v1.10.0 // indirect

replace github.com/keepwell-go/keepwell => ../

replace github.com/keepwell-go/keepwell/backend/docker => ../backend/docker
