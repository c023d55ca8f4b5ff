# What a contributor types. .ci/run is what must pass.
.PHONY: test lint tidy bench

test:
	go test -race -shuffle=on work

lint:
	for m in $$(go list -m -f '{{.Dir}}'); do (cd $$m && golangci-lint run ./...) || exit 1; done

tidy:
	for m in $$(go list -m -f '{{.Dir}}'); do (cd $$m && GOWORK=off go mod tidy) || exit 1; done

bench:
	go test -run='^$$' -bench=. -benchmem work
