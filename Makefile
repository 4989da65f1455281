# The commands of this repository; `make` lists them. CONTRIBUTING.md says when to use which.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUF         := go tool -modfile=tools/go.mod buf
STATICCHECK := go tool -modfile=$(CURDIR)/tools/lint/go.mod staticcheck
GOFUMPT     := go tool -modfile=tools/lint/go.mod gofumpt
API_IMAGE   := api/schedulerd.v1.binpb
# The underscore hides it from ./... in Go.
REGENERATED := bin/_generated
# Folders with a go.mod and Go code of their own.
MODULES     := $(filter-out tools/lint,$(patsubst %/,%,$(dir $(shell git ls-files go.mod '*/go.mod'))))

.PHONY: help
help: ## List these commands
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-16s %s\n", $$1, $$2 }'

.PHONY: build
build: ## Build bin/schedulerd and bin/schedctl
	CGO_ENABLED=0 go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/...

.PHONY: run
run: build ## Run the example flows and watch them; Ctrl-C stops
	@tools/run.sh

.PHONY: test
test: ## Vet and test everything under the race detector; a skipped test is a failure
	go vet ./...
	go test -race -vet=off -timeout=20m -json ./... | go -C tools run ./testreport

.PHONY: generate
generate: ## Generate gen/ from proto/
	$(BUF) generate

.PHONY: api-image
api-image: ## Record the API in proto/ as the one that must not break
	@if [ -f $(API_IMAGE) ]; then $(BUF) breaking proto --against $(API_IMAGE); fi
	@mkdir -p $(dir $(API_IMAGE))
	$(BUF) build proto --exclude-source-info -o $(API_IMAGE)

.PHONY: check-generate
check-generate: ## Fail when gen/ or the API image is not what proto/ says
	@rm -rf $(REGENERATED)
	$(BUF) generate --output $(REGENERATED)
	$(BUF) build proto --exclude-source-info -o $(REGENERATED)/$(notdir $(API_IMAGE))
	@diff -r $(REGENERATED)/gen/go gen/go || { echo 'gen/ is out of date: run make generate' >&2; exit 1; }
	@cmp $(REGENERATED)/$(notdir $(API_IMAGE)) $(API_IMAGE) || { echo 'the API image is out of date: run make api-image' >&2; exit 1; }

.PHONY: lint
lint: ## Check format, style and API compatibility
	$(BUF) lint proto
	$(BUF) format proto --diff --exit-code
	$(if $(wildcard $(API_IMAGE)),$(BUF) breaking proto --against $(API_IMAGE))
	@out=$$($(GOFUMPT) -l .); [ -z "$$out" ] || { echo "not gofumpt'ed (run make format):" >&2; echo "$$out" >&2; exit 1; }
	@for module in $(MODULES); do echo "vet and staticcheck: $$module"; (cd $$module && go vet ./... && $(STATICCHECK) ./...); done

.PHONY: format
format: ## Rewrite protos and Go files in the one format
	$(BUF) format proto --write
	$(GOFUMPT) -w .

.PHONY: bench
bench: build ## Measure against floors and peers (minutes)
	go -C bench run .

.PHONY: bench-quick
bench-quick: build ## The same, short: a smoke test of the benchmarks
	go -C bench run . -quick

.PHONY: simulate
simulate: ## Run the engine through years of random flows, failures and crashes
	SCHEDULERD_SIMULATE=$${SCHEDULERD_SIMULATE:-10m} go test -count=1 -timeout=0 -run=Simulation -v ./internal/core/simtest

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (10s)
	@tools/fuzz.sh

.PHONY: clean
clean: ## Remove what build, test and run left behind
	rm -rf bin data
