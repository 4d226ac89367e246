# All targets work on a machine that has nothing but Go and make; what tests in a browser
# need, make browser installs.

MODULES := . controllerruntime store/disk metrics/prometheus tracing/opentelemetry examples e2e bench
LINT    := bin/golangci-lint
TESTFLAGS ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

.PHONY: test
test: ## run the tests of all modules under the race detector
	@set -e; for m in $(MODULES); do echo "== $$m"; (cd $$m && go test -race $(TESTFLAGS) ./...); done

.PHONY: lint
lint: $(LINT) ## check all modules: gofmt, go vet, golangci-lint, tidy go.mod files
	@set -e; for m in $(MODULES); do echo "== $$m"; \
		(cd $$m && $(CURDIR)/$(LINT) run ./... && GOWORK=off go mod tidy -diff); done

.PHONY: quickstart
quickstart: ## run three watchers over a fake clientset for a few seconds
	go run ./examples/quickstart

.PHONY: demo
demo: ## run the same watchers against a real API server inside the process
	cd e2e && go run ./demo

.PHONY: example-operator
example-operator: ## run the example operator against a real API server, and get in its way
	cd e2e && go run ./operator

.PHONY: browser
browser: ## install Chromium, which the tests of the page need, from Debian's packages
	@command -v chromium >/dev/null || { sudo=$$([ $$(id -u) = 0 ] || echo sudo); \
		$$sudo apt-get update -q && $$sudo apt-get install -q -y --no-install-recommends chromium; }

.PHONY: page
page: browser ## take the picture of the page that is in the README
	cd e2e && go test -count=1 -run Picture ./page -screenshot $(CURDIR)/docs/page.png

.PHONY: bench
bench: ## compare with client-go, for some seventeen minutes; writes bench/RESULTS.md and its plot
	cd bench && go run . -write .

.PHONY: bench-quick
bench-quick: ## the same in two minutes, with smaller sizes; only prints
	cd bench && go run . -quick

.PHONY: bench-manager
bench-manager: ## compare controller-runtime managers; writes e2e/manager/compare/RESULTS.md
	cd e2e && go run ./manager/compare -write manager/compare/RESULTS.md

.PHONY: bench-disk
bench-disk: ## a million objects on disk and in memory, for some six minutes; takes 10 GiB of memory
	cd store/disk && go run ./measure -objects 1000000

.PHONY: bench-operator
bench-operator: ## compare it with the same operator on controller-runtime, for some seven minutes
	cd e2e && go run ./operator/compare -write operator/compare/RESULTS.md

.PHONY: stress
stress: ## run the root module's tests 100 times, also on one processor
	go test -race -short -count=100 -timeout=60m . ./informertest ./enqueue ./store/...
	GOMAXPROCS=1 go test -race -short -count=100 -timeout=60m . ./informertest ./enqueue ./store/...

# The linter is a module of its own, so that nothing of it is in anybody's build.
$(LINT): tools/go.mod
	cd tools && GOWORK=off go build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
