# make            format, vet, lint, tidy modules, then make test
# make test       the fast, complete set: needs only Go and curl, no C compiler and no PostgreSQL
# make test-race  with the race detector, on PostgreSQL too: needs gcc and PostgreSQL
# make test-all   both, and the rest: the server's tests on PostgreSQL, the benchmarks' own tests
# make test-python the Python package, and frameworks with it: needs Python 3.11
# make test-live  one call in a LiveKit room: needs LIVEKIT_SERVER=/path/to/livekit-server
# make soak       hours of work, kills, slow receivers and a store that goes away; SOAK=30m for less
# make bench      the ratios of docs/internals/performance.md; ARGS='-quick -only 1,2' for some of it
# make site       the documents as a site with navigation and search in dist/site: needs node and npm
# make release    archives for all systems in dist/
.PHONY: all check test test-race test-rest test-python test-live test-all soak bench build fuzz demo release site

# The race detector is off for SQLite (translated from C) and scrypt: with it they take three quarters
# of the tests' time.
race = -race -gcflags='modernc.org/...=-race=false -d=checkptr=0' -gcflags='golang.org/x/crypto/scrypt=-race=false'

# All but the race detector does without C, and so everything is compiled once.
export CGO_ENABLED = 0

tool = go tool -modfile=tools/go.mod

# Runs go test in several modules at the same time, and prints a line for each package, failures, and
# at the end what was skipped and why.
tests = bin/runtests

all: check test

# The server with a fake LLM and a webhook receiver, for the README's session.
demo:
	@examples/demo/run.sh

build:
	go build -trimpath -tags grpcnotrace,validator_novalidatefn -o bin/heardlog ./cmd/api

release:
	scripts/release.sh

# It fails where a link leads nowhere.
site:
	cd docs && npm ci --ignore-scripts --no-audit --no-fund && npx vitepress build

check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt wants to change:"; echo "$$out"; exit 1; }
	go vet ./...
	cd compat && go vet ./...
	cd bench && go vet ./...
	cd tools && go vet ./...
	$(tool) staticcheck ./...
	cd bench && go tool -modfile=../tools/go.mod staticcheck ./...
	cd tools && go tool staticcheck ./...
	@# Functions that only tests call. fault.Codes is for the test that each code has a status.
	@out=$$($(tool) deadcode ./cmd/... ./examples/...) || exit 1; \
	  out=$$(echo "$$out" | grep -v '^internal/fault/.* Codes$$'); test -z "$$out" || { echo "only tests call these:"; echo "$$out"; exit 1; }
	go mod tidy -diff
	cd compat && go mod tidy -diff
	cd bench && go mod tidy -diff

.PHONY: $(tests)
$(tests):
	@go build -C tools -o ../$(tests) ./runtests

# PostgreSQL, browsers, node and Python are left out, so that the set is the same on each machine.
test: export TEST_POSTGRES_URL = none
test: export TEST_PROGRAMS = none
test: $(tests)
	@echo "Building and testing. With an empty build cache the first line takes some minutes."
	@# Many tests wait more than they work. -count=1: the cache does not know the binary.
	@$(tests) . -parallel 4 -timeout 10m ./... -- compat -count=1 -parallel 6 -timeout 30m ./... -- tools ./...
	@echo "Left out: PostgreSQL and the race detector (make test-race), browsers, node and Python (make test-rest)."

# Packages that share nothing between goroutines, and tests of the tree, gain nothing from it.
no_race = /(internal/(archtest|ruletest|spectest)|memory/(codec|echo|evidence|redact|view))$$
test-race: export CGO_ENABLED = 1
test-race: $(tests)
	scripts/with-postgres.sh $(tests) . $(race) -timeout 20m $$(go list ./... | grep -vE '$(no_race)')

# What neither of the two runs: the whole server on PostgreSQL, without the race detector, because
# the difference is in the driver; and what needs PostgreSQL or other programs outside the main
# module.
test-rest: $(tests)
	TEST_STORE=postgres scripts/with-postgres.sh $(tests) . -count=1 -timeout 20m ./tests
	scripts/with-postgres.sh $(tests) compat -count=1 -parallel 6 -timeout 30m ./...
	scripts/with-postgres.sh $(tests) bench -count=1 -timeout 20m ./...

test-python:
	scripts/test-python.sh

test-live:
	scripts/test-python.sh --live

test-all: test test-race test-rest test-python

# For each night. It ends with a log of what a server used, and how slow its slowest requests were.
soak:
	SOAK=$${SOAK:-2h} scripts/with-postgres.sh sh -c 'cd compat && go test -run TestSoak -count=1 -timeout 0 -v .'

bench:
	cd bench && go run . $(ARGS)

# Each fuzz target for a while; not part of CI.
FUZZTIME ?= 30s
fuzz:
	@for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done
