# make        what CI checks: format, vet, lint, tidy modules, race tests
# make test   the tests alone, as the README names them
# make bench  the ratios of docs/internals/performance.md; ARGS='-quick -only 1,2' for some of it
.PHONY: all check test bench build fuzz demo

# Races are looked for in our own code and what works with it. SQLite translated from C and scrypt, whose work is millions of loads a test, are left as they are built: three
# quarters of the tests' time went there.
race = -race -gcflags='modernc.org/...=-race=false -d=checkptr=0' -gcflags='golang.org/x/crypto/scrypt=-race=false'

tool = go tool -modfile=tools/go.mod

all: check test

# The server with a fake LLM and a webhook receiver, for the README's session.
demo:
	@examples/demo/run.sh

build:
	CGO_ENABLED=0 go build -trimpath -o bin/heardlog ./cmd/api

check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "gofmt wants to change:"; echo "$$out"; exit 1; }
	go vet ./...
	cd compat && go vet ./...
	cd bench && go vet ./...
	$(tool) staticcheck ./...
	cd bench && go tool -modfile=../tools/go.mod staticcheck ./...
	@# Functions that no program reaches, and so only tests call. fault.Codes lists all codes for the test that each has a status.
	@out=$$($(tool) deadcode ./cmd/... ./examples/...) || exit 1; \
	  out=$$(echo "$$out" | grep -v '^internal/fault/.* Codes$$'); test -z "$$out" || { echo "only tests call these:"; echo "$$out"; exit 1; }
	go mod tidy -diff
	cd compat && go mod tidy -diff
	cd bench && go mod tidy -diff

test:
	go test $(race) -timeout 20m ./...
	cd compat && go test $(race) -count=1 -timeout 20m ./... # -count=1: a cached result would be of another binary
	cd bench && go test $(race) -count=1 -timeout 20m ./...

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
