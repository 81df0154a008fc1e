# Every target is one or two commands that you could type yourself.

BACKEND ?= all
COUNT   ?= 1
VERSION ?= v0.1.0
MUTANT  ?=
ONLY    ?=
DURATION ?= 1h
SEED    ?=
FUZZTIME ?= 60s
MODULE    = github.com/dlock-go/dlock
LIBRARY   = ./... $(addprefix ./backend/,all/... etcd/... pg/... redis/... zk/...) ./cmd/dlock/... ./internal/chaos/...
USED      = . ./backend/... $(addprefix ./backend/,all/... etcd/... pg/... redis/... zk/...) ./cmd/dlock
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
# A test that fails is run again alone, RERUNS times at most, and is told of; a data race is not.
RERUNS ?= 0
GOTEST   = gotest.tools/gotestsum@v1.13.0 --format=standard-quiet --hide-summary=skipped \
	--rerun-fails=$(RERUNS) --rerun-fails-abort-on-data-race
TEST_ALL = $(GOTEST) --packages=./... --

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What go vet has to say is for make check.
test: export GOFLAGS += -vet=off
test: servers ## install what is missing, then pass every test on every backend
	$(MAKE) RERUNS=2 library
	$(MAKE) --jobs 2 RERUNS=2 conformance modules portable

# A history of the protocol's model is one goroutine: it has no data races to look for.
library: ## the tests of the library's packages, without the suite
	go run $(GOTEST) --packages="$$(go list $(LIBRARY) | grep -v /internal/protocol)" -- -p 4 -race -shuffle=on -timeout 30m
	go run $(GOTEST) --packages=./internal/protocol -- -shuffle=on -timeout 30m

modules: ## the tests of the modules beside the library's own
	DLOCK_CONFORMANCE_TTL=2s go -C examples/natsbackend run $(TEST_ALL) -shuffle=on -parallel 16 -timeout 30m
	go -C bench run $(TEST_ALL) -shuffle=on -timeout 30m
	go -C internal/configtest run $(TEST_ALL) -shuffle=on
	go -C otel run $(TEST_ALL) -race -shuffle=on
	go -C otel/integration run $(TEST_ALL) -shuffle=on
	go -C internal/simulation run $(TEST_ALL) -timeout 10m
	GOWORK=off go -C tools/release run $(TEST_ALL)

quick: ## vet, unit tests, the suite in memory and on files: needs no server
	go vet $(MODULE)/...
	go test . ./backend ./internal/queue ./internal/renewal ./backend/memory ./backend/file
	DLOCK_CONFORMANCE_TTL=2s go test ./conformance -backend=memory,file

conformance: ## the conformance suite: make conformance BACKEND=redis COUNT=20
	go run $(GOTEST) --format=standard-verbose --packages=./conformance -- \
		-race -shuffle=on -count=$(COUNT) -timeout 60m -args -backend=$(BACKEND) | \
		grep --line-buffered -vE '^ *(=== |--- (PASS|SKIP)|PASS$$)'

versions: servers ## the suite on the supported versions of the servers: make versions ONLY="postgres 14"
	@scripts/versions $(ONLY)

coming-from-java: servers ## the change-over beside the real Redisson, Curator and ShedLock: needs Java and Maven
	go -C examples/comingfrom test -p 1 -count=1 -tags jvm -run 'Java|Claims' ./redisson ./curator ./shedlock

recipes: servers ## adapters, recipes, examples and alerts, each with the real library and server
	go -C contrib/gocronlock run $(TEST_ALL) -race -shuffle=on
	go -C contrib/certmagiclock run $(TEST_ALL) -race -shuffle=on
	go -C contrib/integration run $(TEST_ALL) -race -shuffle=on -parallel 16
	go -C examples/comingfrom run $(TEST_ALL) -shuffle=on
	go -C examples/observability run $(TEST_ALL) -shuffle=on
	go -C examples/recipes vet ./...
	go -C examples/recipes run $(STATICCHECK) ./...
	go -C examples/recipes run $(TEST_ALL) -shuffle=on
	GOWORK=off go -C tools/alerts run $(TEST_ALL)

portable: ## files as on systems without record locks of an open file, through the whole suite
	go run $(GOTEST) --packages=./backend/file -- -tags dlock_portable -shuffle=on -count=$(COUNT) -timeout 30m
	DLOCK_CONFORMANCE_TTL=2s go run $(GOTEST) --packages=./conformance -- -tags dlock_portable -shuffle=on -count=$(COUNT) -timeout 60m -args -backend=file

chaos: servers ## every backend under fire, about ten minutes
	go test -v -count=1 -timeout 60m ./internal/chaos -faults=60 -holderfaults=100 -think=10ms -docs=../../docs/faults.md
	go test -count=1 -timeout 60m ./internal/protocol -histories=1000
	go test -v -count=1 -timeout 60m ./backend/redis -run TestScriptsAgainstModel -redis.calls=300000
	go -C otel/integration test -race -v -count=1 -timeout 60m -run TestModel . -calls=1000000

soak: servers ## the same for as long as you like: make soak DURATION=8h BACKEND=redis
	go test -v -count=1 -timeout 0 ./internal/chaos -run TestChaos -backend=$(BACKEND) -duration=$(DURATION)

failovers: servers ## series of 20 planned Redis failovers, with 100,000 guarded updates over each
	go test -v -count=1 -timeout 60m ./backend/redis -run 'TestPlanned(ClusterFailover|FailoverBehind)' -redis.failovers=20 -redis.updates=5000

simulate: ## search in virtual time for what no test has named: make simulate DURATION=10m SEED=17
	go -C internal/simulation test -v -count=1 -timeout 0 -run TestSimulate . \
		-simulation.duration=$(DURATION) $(addprefix -simulation.seed=,$(SEED))

mutants: servers ## seed known bugs, each of which a test must catch: make mutants MUTANT=redis-
	go test -v -tags mutants -count=1 -timeout 60m -parallel 2 ./mutants -run TestMutants -mutant='$(MUTANT)' | \
		grep --line-buffered -vE '^ *(=== |--- PASS|run_test)'

lint: ## format, and vet and staticcheck of the library
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'run gofmt'; exit 1; }
	go vet $(LIBRARY) ./conformance
	go run $(STATICCHECK) $(LIBRARY) ./conformance

check: lint ## the same for every module, 32 bits and other systems
	go run $(STATICCHECK) $(MODULE)/...
	for dir in tools/alerts tools/release; do GOWORK=off go -C $$dir run $(STATICCHECK) ./...; done
	scripts/modules check
	GOARCH=386 CGO_ENABLED=0 go vet $(LIBRARY) ./conformance
	go vet -tags dlock_portable ./backend/file ./conformance
	go vet -tags oldclients ./cmd/dlock
	go vet -tags mutants ./mutants
	go -C examples/comingfrom vet -tags jvm ./...
	for system in darwin freebsd; do GOOS=$$system GOARCH=amd64 CGO_ENABLED=0 go vet $(MODULE)/...; done
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 go vet . ./backend/... ./cmd/dlock

systems: ## build what people use for every system and processor that they have
	for system in linux/amd64 linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64 windows/386 \
		freebsd/amd64 freebsd/arm64 freebsd/386 openbsd/amd64; do \
		echo $$system; GOOS=$${system%/*} GOARCH=$${system#*/} CGO_ENABLED=0 go build $(USED); done
	CGO_ENABLED=1 go build $(USED)

OLD ?= HEAD~1
old-clients: servers ## clients of two versions on the same locks: make old-clients OLD=v0.1.0
	@scripts/old-clients $(OLD)

windows: ## run the command line for Windows under Wine, from Debian's packages
	@scripts/windows

servers: ## install the servers that the tests start
	@scripts/install-servers

release-try: ## make a release on a clone, install it as people do, and drop it: VERSION=v0.1.0
	GOWORK=off go -C tools/release run . -n $(VERSION)

release: ## make the commit and the tags of a release, to be pushed: VERSION=v0.1.0
	GOWORK=off go -C tools/release run . $(VERSION)

coverage: ## how much of each package all tests together run: coverage.html
	go test -coverprofile=coverage.out -coverpkg=$(MODULE),$(MODULE)/backend/...,$(MODULE)/internal/queue,$(MODULE)/internal/renewal \
		-timeout 60m . ./backend/... ./backend/etcd/... ./backend/pg/... ./backend/redis/... ./backend/zk/... ./internal/queue ./internal/renewal ./conformance
	go tool cover -html=coverage.out -o coverage.html
	go tool cover -func=coverage.out | tail -1

bench: ## the library's own benchmarks, in memory
	go test -run '^$$' -bench . -benchmem .

compare: servers ## measure all backends beside other libraries: make compare ONLY=W1,held
	go -C bench run . -only "$(ONLY)"
	$(if $(ONLY),,go -C bench run . -only processes)

fuzz: ## look for names, URLs and replies that break something, a minute for each fuzz target
	@scripts/fuzz $(FUZZTIME)

up: ## start the servers of docker-compose.yml, for people who have Docker
	docker compose up --detach --wait

down: ## stop them and drop their data
	docker compose down --volumes

.PHONY: help test library modules quick conformance versions coming-from-java recipes portable chaos failovers soak simulate mutants lint check systems old-clients windows servers release-try release coverage bench compare fuzz up down
