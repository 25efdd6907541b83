# CI runs these targets; see .ci/run.
STATICCHECK = go tool -modfile=tools/go.mod staticcheck

# Separate modules, so that their dependencies stay out of the core's go.mod.
MODULES = $(filter-out . tools,$(patsubst %/,%,$(sort $(dir $(shell find * -name node_modules -prune -o -name go.mod -print)))))

# The modules that users import. A release tags the core and each of them.
RELEASED = postgres nats tonlite otelchaingql

.PHONY: test test-386 cross lint modules api api-check oldest oldest-build rehearse version release workflow bench compare microbench fuzz vuln conformance record clients chaos attack soak models proxies explorer explorer-check

test:
	go test ./...

# All tests of the core with 32-bit integers.
test-386:
	GOARCH=386 go test ./...

# The core must build on other systems and on 32-bit platforms, and its limits must hold there.
cross:
	GOOS=darwin GOARCH=arm64 go vet ./...
	GOOS=windows go vet ./...
	GOARCH=386 go build ./...
	GOARCH=arm go build ./...
	GOARCH=386 go test -run 'Limit|RetryAfter|Overflow' . ./internal/plan

lint:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt-ed: $$unformatted"; exit 1; }
	go vet ./...
	$(STATICCHECK) ./...
	go mod verify
	go mod tidy -diff

# The tests of the modules under test/ measure times and memory, so they run one after another. Everything else runs
# three modules at a time, those with the longest tests first, because these mostly wait for their servers.
modules:
	@export STATICCHECK=$$(go tool -modfile=tools/go.mod -n staticcheck) && \
	{ printf '%s\n' nats postgres $(filter-out test/% nats postgres,$(MODULES)); \
	  printf '%s -run ^$$\n' $(filter test/%,$(MODULES)); } | xargs -P 3 -L 1 tools/module.sh && \
	for module in $(filter test/%,$(MODULES)); do \
	  case $$module in test/chaos | test/soak) race=-race ;; *) race= ;; esac; \
	  (cd $$module && go test $$race ./...) || exit 1; \
	done

# The exported API of each module, so that a change of the code shows its changes of the API.
api:
	tools/api.sh $@ $(RELEASED)

api-check:
	@current=$$(mktemp -d) && tools/api.sh $$current $(RELEASED) && diff -u api $$current || \
	  { echo "run make api, and commit its changes with yours"; exit 1; }

# The oldest Go of each go.mod: all tests, and a build of what users import.
oldest:
	tools/oldest.sh $(RELEASED)

oldest-build:
	tools/oldest.sh -build $(RELEASED)

# What would users get from go get if this were released now?
rehearse:
	tools/rehearse.sh $(RELEASED)

# Prepares and tags a release: docs/releasing.md. DRY=-n changes nothing.
version:
	tools/version.sh $(VERSION)

release:
	tools/release.sh $(DRY) $(VERSION) $(RELEASED)

# Checks the GitHub workflow.
workflow:
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.9

# Compares chaingql with other servers in about fifteen minutes. The tables are stored in
# test/bench/RESULTS.md.
bench:
	cd test/bench/node && npm ci --no-audit --no-fund
	cd test/bench && go run . -o RESULTS.md

# Compares the speed of this tree with that of the commit BASE. COMPARE="-only balance" selects one measurement.
compare:
	cd test/bench && go run ./compare -base $(BASE) $(COMPARE)

microbench:
	go test -run '^$$' -bench . -benchmem ./...

# Fuzzes each parser for two minutes, or for FUZZTIME. Findings are stored as seeds in testdata/fuzz.
fuzz:
	@for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(FUZZTIME),2m) $$pkg || exit 1; \
	  done; \
	done

# Checks dependencies for known vulnerabilities. Needs network access to the database.
vuln:
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 ./...

# Runs subscribers while connections are cut, services are replaced, and the source fails,
# repeats, omits and loses blocks. No block may be lost without STREAM_GAP. Takes at most
# four minutes and logs its seed.
chaos:
	cd test/chaos && go test . -run TestChaos -count=1 -v -timeout 5m -chaos.blocks 5000 -chaos.subscribers 240 -chaos.rate 100 \
	  -chaos.rounds 2 -chaos.cuts 500 -chaos.failures 50 -chaos.holes 0.005 -chaos.for 240s $(CHAOS)

# Sends thousands of hostile bodies, documents, frames and connections in all sizes. `make
# modules` runs the short form. Results are stored in test/attack/RESULTS.md.
attack:
	cd test/attack && go test -count=1 -v . -args -attack.full

# Runs honest and hostile clients for ten minutes at 60 % CPU, with restarts of the service. No
# block may be lost, and the service must release all resources after the clients have left.
soak:
	cd test/soak && go test . -run TestSoakReleasesAllResources -count=1 -v -timeout 0 -soak.for 10m -soak.restarts 5 $(SOAK)

# Runs all cases of the tests with random documents and chains. The other targets run a quarter of them, or an eighth
# with the race detector. SEED=1000 selects other chains: use numbers that nobody has used.
models:
	CHAINGQL_CASES=all CHAINGQL_SEED=$(SEED) go test ./...

# Restarts and kills two instances behind nginx, HAProxy and Caddy, with 300 subscribers and 20
# queries per second. No block may be lost, and no query may fail during the restarts. A proxy that
# is not installed is skipped. `make modules` runs a short form with nginx. Results are stored in
# examples/mounts/proxies/RESULTS.md.
proxies:
	cd examples/mounts && go test . -run TestRestartsAndCrashesBehindProxiesLoseNoBlock -count=1 -v -args -proxies.full

# Builds the explorer's assets from npm packages that explorer/web's lock file pins.
explorer:
	cd explorer/web && npm ci --ignore-scripts --no-audit --no-fund && node build.js

# Checks that the committed assets match their sources.
explorer-check:
	cd explorer/web && npm ci --ignore-scripts --no-audit --no-fund && node build.js --check

# Runs third-party clients and validators from npm against examples/server.
conformance:
	cd test/conformance && npm ci --no-audit --no-fund && npm test

# Records the answers of graphql-js for the Go tests of internal/plan again. Needed after a change of the tests' schema.
record:
	cd test/conformance && npm ci --no-audit --no-fund && node judges/record.js

# Tests the example client in TypeScript. `make modules` tests the one in Go.
clients:
	cd examples/clients/typescript && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && npm test
