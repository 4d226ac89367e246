# All targets work on a machine that has nothing but Go and make; what tests in a browser
# need, make browser installs.

MODULES := . controllerruntime store/disk metrics/prometheus tracing/opentelemetry examples e2e bench
# What users import; each has tags of its own.
PUBLISHED := . controllerruntime store/disk metrics/prometheus tracing/opentelemetry
LINT    := bin/golangci-lint
TOOL    := cd tools && GOWORK=off go run
TESTFLAGS ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

.PHONY: test
test: ## run the tests of all modules under the race detector
	go test -race -timeout=20m $(TESTFLAGS) $(MODULES:%=./%/...)
	cd tools && GOWORK=off go test ./...

.PHONY: lint
lint: $(LINT) ## check all modules: gofmt, go vet, golangci-lint, tidy go.mod files, licences, walls between files
	@set -e; for m in $(MODULES); do echo "== $$m"; \
		(cd $$m && $(CURDIR)/$(LINT) run ./... && GOWORK=off go mod tidy -diff); done
	@echo "== tools"; cd tools && export GOWORK=off && $(CURDIR)/$(LINT) run ./... && go mod tidy -diff
	@echo "== licences"; $(TOOL) ./licences -root .. -quiet $(PUBLISHED)
	@echo "== walls"; $(TOOL) ./walls -root ..

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
stress: ## run the root module's tests 100 times on one processor, on those there are, and on eight
	@set -e; for p in 1 "" 8; do echo "== GOMAXPROCS=$$p"; \
		GOMAXPROCS=$$p go test -race -short -count=100 -timeout=4h . ./internal/... ./informertest ./enqueue ./store/...; done

# Each target that is found with "go test -list" in a directory that may have one.
FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME, 30 s unless told otherwise
	@set -e; for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); do \
		list=$$(go test -list '^Fuzz' $$dir) || { echo "$$list"; exit 1; }; \
		for target in $$(echo "$$list" | grep '^Fuzz'); do \
			echo "== $$dir $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$dir; done; done

.PHONY: mutations
mutations: ## plant faults in a copy of the library, one by one, and see who notices; some twenty minutes
	@$(TOOL) ./mutate -root .. -table "$(TABLE)"

SOAK ?= 10m
.PHONY: soak
soak: ## put faults in the way of informers of a real API server for SOAK, and then as long steady work
	cd e2e && go test -count=1 -timeout 0 -run 'Chaos|Soak' -v ./chaos -chaos $(SOAK) -soak $(SOAK) -table "$(TABLE)"

.PHONY: licences
licences: ## list the licences of all that comes into the build of who uses a module
	@$(TOOL) ./licences -root .. $(PUBLISHED)

.PHONY: vulncheck
vulncheck: bin/govulncheck ## look for known vulnerabilities; VULNCHECK=required fails without the database
	@$(TOOL) ./vulncheck -root .. -govulncheck ../bin/govulncheck $(PUBLISHED)

.PHONY: apidiff
apidiff: ## compare what is exported with the last tag of each module; VERSION=v2.0.0 is what comes next
	@$(TOOL) ./apidiff -root .. -version "$(VERSION)" $(PUBLISHED)

.PHONY: release-check
release-check: ## prove that HEAD can be released as VERSION, such as v0.1.0
	@$(TOOL) ./release -root .. -version "$(VERSION)" $(PUBLISHED)

.PHONY: release-prepare
release-prepare: ## have the modules require each other in VERSION
	@$(TOOL) ./release -root .. -version "$(VERSION)" -write $(PUBLISHED)

bin/govulncheck: tools/go.mod
	cd tools && GOWORK=off go build -o ../$@ golang.org/x/vuln/cmd/govulncheck

# The linter is a module of its own, so that nothing of it is in anybody's build.
$(LINT): tools/go.mod
	cd tools && GOWORK=off go build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
