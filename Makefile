# What a contributor types. .ci/run is what must pass.
.PHONY: test lint tidy bench mutate compare crash

test:
	go test -race -shuffle=on work

lint:
	for m in $$(go list -m -f '{{.Dir}}'); do (cd $$m && golangci-lint run ./...) || exit 1; done

tidy:
	for m in $$(go list -m -f '{{.Dir}}'); do (cd $$m && GOWORK=off go mod tidy) || exit 1; done

bench:
	go test -run='^$$' -bench=. -benchmem work

# Every small change of the six packages that no test notices; takes the better part of an hour.
mutate:
	go run ./internal/mutate ./registry ./registry/fresh ./quota ./sweep ./probe ./bodylimit ./backend

# The primitives beside what they replace, as a table.
compare:
	go run ./internal/compare

# Kills server, runner and machine at points that a random seed chooses, or SEED=n again; as root.
crash:
	KEEPWELL_REQUIRE=linux go test -count=1 -v -timeout=30m -run=TestWhateverDies ./refserver/cmd/refserver -crash.seed=$${SEED:-$$(date +%s)}
