# What `make` runs is what CI runs; see .ci/run for the whole of it.
STATICCHECK = go tool -modfile=tools/go.mod staticcheck

# Modules of their own, so that the core's go.mod gains nothing by them.
MODULES = $(filter-out . tools,$(patsubst %/,%,$(sort $(dir $(shell find * -name node_modules -prune -o -name go.mod -print)))))

.PHONY: test test-386 cross lint modules bench compare microbench fuzz vuln conformance clients chaos attack soak explorer explorer-check

test:
	go test ./...

# All tests of the core with 32-bit integers.
test-386:
	GOARCH=386 go test ./...

# The core builds for 32-bit platforms, and its limits hold there.
cross:
	GOARCH=386 go build ./...
	GOARCH=arm go build ./...
	GOARCH=386 go test -run 'Limit|TimeToComeBack|Overflow' . ./internal/plan

lint:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt-ed: $$unformatted"; exit 1; }
	go vet ./...
	$(STATICCHECK) ./...
	go mod verify
	go mod tidy -diff

modules:
	@staticcheck=$$(go tool -modfile=tools/go.mod -n staticcheck) && for module in $(MODULES); do \
	  case $$module in test/chaos | test/soak) race=-race ;; *) race= ;; esac; \
	  echo "$$module" && (cd $$module && go mod tidy -diff && go vet ./... && $$staticcheck ./... && go test $$race ./...) || exit 1; \
	done

# Side by side with peers, as ratios, in one run of some six minutes; the tables
# are kept in test/bench/RESULTS.md.
bench:
	cd test/bench/node && npm ci --no-audit --no-fund
	cd test/bench && go run . -o RESULTS.md

# The speed of this tree beside that of an earlier commit, in turns: COMPARE="-only balance" for one of them.
compare:
	cd test/bench && go run ./compare -base $(BASE) $(COMPARE)

microbench:
	go test -run '^$$' -bench . -benchmem ./...

# Each parser for two minutes, or FUZZTIME; findings stay as seeds in testdata/fuzz.
fuzz:
	@for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(FUZZTIME),2m) $$pkg || exit 1; \
	  done; \
	done

# Known vulnerabilities of what is used, for machines that reach their database.
vuln:
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 ./...

# Subscribers through cut lines, from a source that fails, repeats, leaves out and
# loses blocks, of services that are replaced: nothing may be lost without a word.
# Two minutes at most; the seed is printed.
chaos:
	cd test/chaos && go test . -run TestChaos -count=1 -v -timeout 2m -chaos.blocks 5000 -chaos.subscribers 240 -chaos.rate 100 \
	  -chaos.rounds 2 -chaos.cuts 500 -chaos.failures 50 -chaos.holes 0.005 -chaos.for 100s $(CHAOS)

# Hostile bodies, documents, frames and peers by the thousands, in all sizes; its
# short form is among the modules' tests. Lines are kept in test/attack/RESULTS.md.
attack:
	cd test/attack && go test -count=1 -v . -args -attack.full

# Honest and hostile clients for ten minutes, at 60 % of the machine, through
# restarts: nothing may be lost, nor held when they have left.
soak:
	cd test/soak && go test . -run TestSoakEndsAsItBegan -count=1 -v -timeout 0 -soak.for 10m -soak.restarts 5 $(SOAK)

# The explorer's assets, of packages from npm that explorer/web's lock file pins.
explorer:
	cd explorer/web && npm ci --ignore-scripts --no-audit --no-fund && node build.js

# Are they what is built from their sources?
explorer-check:
	cd explorer/web && npm ci --ignore-scripts --no-audit --no-fund && node build.js --check

# Clients and judges from npm, against the main program.
conformance:
	cd test/conformance && npm ci --no-audit --no-fund && npm test

# The TypeScript client's example; the Go one is among the modules.
clients:
	cd examples/clients/typescript && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && npm test
