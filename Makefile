# `make` alone lists the targets.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BIN     := bin/weir
LDFLAGS := -s -w -X main.version=$(VERSION)

# Packages tested at a time. Many tests start servers of their own; more than the cores only slows them down.
TEST_PARALLEL := 2
TEST_FLAGS    :=
PKG           := ./...

FUZZ_TIME       := 2m
FUZZ_SHORT_TIME := 5s
BENCH           := .
BENCH_COUNT     := 1
BENCH_FLAGS     :=
PEERS           := build/peers
SOAK_TIME       := 10m

GOLANGCI_LINT := $(GO) tool -modfile=tools/golangci-lint/go.mod golangci-lint
BUF           := $(GO) tool -modfile=tools/buf/go.mod buf
LINT_VENV     := build/lint-venv

# What clients of the last release were generated from: no later change may break them.
PROTO_BASELINE := proto/baseline.binpb

.PHONY: help
help: ## List the targets and what they do
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z0-9-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'Variables: VERSION, PKG (packages to test), TEST_FLAGS, FUZZ_TIME, BENCH (pattern), BENCH_COUNT, BENCH_FLAGS, SOAK_TIME.'

##@ Use

.PHONY: build
build: build-kong ## Build bin/weir and bin/weir-ratelimit (the Kong plugin), static binaries
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/weir

.PHONY: build-kong
build-kong: ## Build the Kong plugin alone
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)-ratelimit ./kongplugin

.PHONY: run
run: build ## Build and serve the shipped rules with counters in memory
	$(BIN) serve --config config/weir.yaml --rules config/rules

.PHONY: run-envoy
run-envoy: ## Run a real Envoy in front of weir (of make run), with an upstream of its own
	@test/setup.sh envoy
	@# The shipped bootstrap with everything on this machine, and an echo service that Envoy itself plays.
	@sed -E 's/address: (weir|echo|0\.0\.0\.0),/address: 127.0.0.1,/' envoy/bootstrap.yaml > build/envoy.yaml
	@echo '==> Envoy listens on http://127.0.0.1:10000 and :10001, its admin page is http://127.0.0.1:9901'
	build/venv/bin/envoy -c build/envoy.yaml --config-yaml "$$(cat envoy/echo.yaml)" --concurrency 2 --disable-hot-restart -l warn

##@ Test

.PHONY: test
test: test-setup ## Install what the tests need, then run all of them with the race detector
	@echo '==> go test -race ($(TEST_PARALLEL) packages at a time)'
	CGO_ENABLED=1 $(GO) test -race -shuffle=on -p $(TEST_PARALLEL) $(TEST_FLAGS) $(PKG)

.PHONY: test-setup
test-setup: ## Find or install what the tests need: a C compiler, Redis, PostgreSQL, Envoy
	@test/setup.sh tests

.PHONY: fuzz
fuzz: test-setup ## Fuzz every target for FUZZ_TIME each (minutes)
	@test/fuzz.sh $(FUZZ_TIME)

.PHONY: fuzz-short
fuzz-short: test-setup ## Fuzz every target for FUZZ_SHORT_TIME each (seconds)
	@test/fuzz.sh $(FUZZ_SHORT_TIME)

.PHONY: bench
bench: build test-setup ## Measure weir beside its peers and write the tables of docs/benchmarks.md (a quarter of an hour; run it alone)
	$(GO) build -o build/bench ./tools/bench
	build/bench -peer $(PEERS)/ratelimit $(BENCH_FLAGS)

.PHONY: bench-peers
bench-peers: ## Install the servers that bench compares weir with into build/; nothing of them is shipped
	@test/setup.sh peers

.PHONY: bench-go
bench-go: test-setup ## Run the Go benchmarks whose names match BENCH, BENCH_COUNT times
	$(GO) test -run='^$$' -bench='$(BENCH)' -benchmem -count=$(BENCH_COUNT) -p 1 $(PKG)

.PHONY: figures
figures: test-setup ## Measure what the README says (run it alone on the machine)
	@$(GO) test -count=1 -v -run 'Reload|Rolling|Redis|Replicas|K1s0' ./test/e2e | grep -o 'figure: .*\|^--- FAIL.*\|^FAIL.*'
	@$(GO) test -count=1 -v -run 'Exactly|Killed|Denials' ./test/kong | grep -o 'figure: .*\|^--- FAIL.*\|^FAIL.*'
	@$(GO) test -run '^$$' -bench 'Match|Load' -benchmem ./pkg/rules | grep '^Benchmark'
	@$(GO) test -count=1 -v -run BytesPerKey ./pkg/memstore | grep -o '[0-9.]* bytes a key.*'
	@$(GO) test -run '^$$' -bench 'Sweep' ./pkg/memstore | grep '^Benchmark'
	@$(GO) test -run '^$$' -bench 'Open|Alone' -benchmem ./pkg/failover | grep '^Benchmark'

.PHONY: e2e-gateway
e2e-gateway: build test-setup ## Run weir inside a real Envoy Gateway, installed into build/ (a few minutes the first time)
	@test/setup.sh gateway
	TEST_WEIR=$(CURDIR)/$(BIN) CGO_ENABLED=1 $(GO) test -race -tags gateway -count=1 -timeout 10m -v ./test/gateway

.PHONY: soak
soak: build test-setup ## Load weir behind a real Envoy for SOAK_TIME and watch answers, memory and goroutines
	SOAK_TIME=$(SOAK_TIME) CGO_ENABLED=1 $(GO) test -tags soak -count=1 -timeout 0 -v ./test/soak
	SOAK_TIME=$(SOAK_TIME) CGO_ENABLED=1 $(GO) test -race -run Soak -count=1 -timeout 0 -v -p 1 ./pkg/fastgrpc ./test/fastgrpc

##@ Write

.PHONY: fmt
fmt: ## Format the Go code
	$(GOLANGCI_LINT) fmt

.PHONY: fix
fix: fmt ## Format the Go code and apply what linters can mend by themselves
	$(GOLANGCI_LINT) run --fix

.PHONY: lint
lint: lint-setup ## Check Go code, modules, shell scripts, Dockerfiles and protocol buffers
	$(GOLANGCI_LINT) run
	$(GO) mod tidy -e -diff # -e: not every proxy has what the tests of dependencies need
	$(LINT_VENV)/bin/shellcheck .ci/run test/*.sh tools/*.sh
	$(LINT_VENV)/bin/hadolint Dockerfile examples/kong/Dockerfile
	$(BUF) lint
	$(BUF) format --diff --exit-code
	$(BUF) breaking --against $(PROTO_BASELINE)

.PHONY: lint-setup
lint-setup: ## Find or install what lint needs besides Go: shellcheck, hadolint
	@test/setup.sh lint

.PHONY: generate
generate: ## Write generated files anew
	$(GO) generate ./...

.PHONY: proto-baseline
proto-baseline: ## After a release, make its protocol buffers what later ones must be compatible with
	$(BUF) build --exclude-source-info -o $(PROTO_BASELINE)

.PHONY: check-generated
check-generated: ## Fail if generated files differ from what generate writes
	@before=$$(tools/tree-state.sh); \
	$(MAKE) --no-print-directory generate; \
	if [[ $$before != "$$(tools/tree-state.sh)" ]]; then \
		echo 'check-generated: these files are not what their sources generate: run "make generate" and commit them' >&2; \
		git status --short >&2; \
		exit 1; \
	fi

.PHONY: clean
clean: ## Remove what was built and installed here
	rm -rf bin build
