# All targets need only Go and make. The tests in a browser also need Chromium, which make browser
# installs, and those of store/valkey need a server, which make valkey installs.

# The modules from which gonew makes new programs. Each has its own tags and no replace lines, which a
# program would inherit. So they cannot be tidied alone until the versions that they require are released.
TEMPLATES := examples/nodeagent examples/operator
MODULES := . controllerruntime multicluster store/disk store/valkey metrics/prometheus tracing/opentelemetry relay examples $(TEMPLATES) e2e e2e/kubernetes bench
# The modules of make test: what users import, without the relay, whose build contains an API server.
TRUST := . controllerruntime multicluster store/disk store/valkey metrics/prometheus tracing/opentelemetry examples $(TEMPLATES)
# The modules of make test-all. The other one builds kube-apiserver, which takes ten minutes.
QUICK := $(filter-out e2e/kubernetes,$(MODULES))
# The modules that users import. Each has its own tags.
PUBLISHED := . controllerruntime multicluster store/disk store/valkey metrics/prometheus tracing/opentelemetry relay
# The platforms on which the published modules are checked.
PLATFORMS ?= linux/amd64 linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
LINT    := bin/golangci-lint
TOOL    := cd tools && GOWORK=off go run
TESTFLAGS ?=
# By default, every process under the race detector sleeps for a second before it ends. A test
# that meets a race has failed by then.
export GORACE ?= atexit_sleep_ms=0

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

# Go compiles in silence, for minutes if nothing is cached. So the packages are built first, and one
# in twenty is printed.
.PHONY: test
test: ## run the quick tests of what users import
	@go build -v $$(go list -test -deps -f '{{if not (or .Standard .ForTest (eq .Name "main"))}}{{.ImportPath}}{{end}}' $(TRUST:%=./%/...)) 2>&1 \
		| awk '/^go: downloading/ || NR % 20 == 1 { print "building", $$0; fflush() }'
	go test -short -timeout=20m $(TESTFLAGS) $(TRUST:%=./%/...)

.PHONY: test-all
test-all: ## run the quick tests of all modules under the race detector
	go test -race -short -timeout=20m $(TESTFLAGS) $(QUICK:%=./%/...)
	cd tools && GOWORK=off go test -short -timeout=20m $(TESTFLAGS) ./...

# Searches the packages in which -short makes a difference. The suite of storetest is such a
# difference in the packages that run it.
LONG = grep -rlE --include='*.go' --exclude-dir=tools 'testing\.Short\(\)|storetest\.Run' . | xargs -n1 dirname | sort -u
# Only make soak runs the packages of e2e and bench at full length.
.PHONY: test-long
test-long: ## run the tests that "make test-all" skips or shortens, at full length, except those of "make soak"
	go test -race -timeout=30m $(TESTFLAGS) $$($(LONG) | grep -vE '^\./(bench|e2e)')

# In the work space, other modules raise the version to that of their go.mod files.
.PHONY: test-oldest
test-oldest: ## run the quick tests of the root module with the oldest client-go that it works with, that of its go.mod
	GOWORK=off go test -short -timeout=20m $(TESTFLAGS) ./...

# In a copy, whose go.mod files change. A program that uses the library can have these versions before we do.
# "go get" loads only the packages at the root of these modules, which import nothing. So go.sum lacks what
# the others import, and "go mod tidy" adds it, for the tests that run "go list" without the work space.
UPGRADE ?= latest
.PHONY: upgrade-check
upgrade-check: ## test the root module and controllerruntime of HEAD with the newest client-go and controller-runtime, or UPGRADE=v0.38.0-rc.0
	rm -rf bin/upgrade; git clone -q . bin/upgrade
	cd bin/upgrade && GOWORK=off go get $(foreach m,api apimachinery client-go,k8s.io/$m@$(UPGRADE)) && GOWORK=off go mod tidy
	cd bin/upgrade/controllerruntime && GOWORK=off go get sigs.k8s.io/controller-runtime@latest && GOWORK=off go mod tidy
	$(MAKE) -C bin/upgrade test TRUST=". controllerruntime"

# Go has no race detector for 386.
.PHONY: test-386
test-386: ## run the quick tests of the root module and of store/disk with 32-bit integers; needs an amd64 processor
	GOARCH=386 CGO_ENABLED=0 go test -short -timeout=20m $(TESTFLAGS) ./... ./store/disk/...

# Measures the root package and the internal packages that users' programs contain, also with
# the tests of other packages. Packages that only tests use are not measured.
COVERED = go list . ./internal/... | grep -vE '/internal/(callbacks|docs|extremes|lab|migrating|mix|model|parity|restart|sample|scrape|testkit)$$' | paste -sd, -
.PHONY: cover
cover: ## print the statement coverage of the root and internal packages; TESTFLAGS=-short takes less time
	@mkdir -p bin; go test -timeout=20m $(TESTFLAGS) -coverpkg="$$($(COVERED))" -coverprofile=bin/cover.out ./... \
		>bin/cover.log || { cat bin/cover.log; exit 1; }
	@go tool cover -func bin/cover.out | tail -1

.PHONY: lint
lint: $(LINT) ## check all modules: gofmt, go vet, golangci-lint, tidy go.mod files, licences, walls between files, plain English
	@set -e; for m in $(MODULES); do echo "== $$m"; \
		(cd $$m && $(CURDIR)/$(LINT) run ./...); done
	@set -e; for m in $(filter-out $(TEMPLATES),$(MODULES)); do echo "== $$m/go.mod"; (cd $$m && GOWORK=off go mod tidy -diff); done
	@echo "== tools"; cd tools && export GOWORK=off && $(CURDIR)/$(LINT) run ./... && go mod tidy -diff
	@echo "== licences"; $(TOOL) ./licences -root .. -quiet $(PUBLISHED)
	@echo "== walls"; $(TOOL) ./walls -root ..
	@echo "== prose"; $(TOOL) ./prose -root ..

# Without cgo, this needs no C compiler for other platforms.
.PHONY: vet-all
vet-all: $(LINT) ## check the published modules for all platforms, or for PLATFORMS=windows/amd64, with go vet, staticcheck and the rest of golangci-lint
	@set -e; for p in $(PLATFORMS); do for m in $(PUBLISHED); do echo "== $$p $$m"; \
		(cd $$m && GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(CURDIR)/$(LINT) run ./...); done; done

.PHONY: quickstart
quickstart: ## run three watchers over a fake clientset for a few seconds
	go run ./examples/quickstart

.PHONY: demo
demo: ## run the quickstart against a real API server
	cd e2e && go run ./demo

.PHONY: example-operator
example-operator: ## run the example operator against a real API server, and disturb it
	cd e2e && go run ./operator

.PHONY: example-shards
example-shards: ## run replicas of the example operator that divide the work, and stop, kill and pause some; takes a minute
	cd e2e && go run ./operator/shards

.PHONY: browser
browser: ## install Chromium from Debian's packages; the tests of the page need it
	@command -v chromium >/dev/null || { sudo=$$([ $$(id -u) = 0 ] || echo sudo); \
		$$sudo apt-get update -q && $$sudo apt-get install -q -y --no-install-recommends chromium; }

.PHONY: valkey
valkey: ## install a Redis server from Debian's packages, unless there is one or Valkey's; the tests of store/valkey need it
	@command -v valkey-server >/dev/null || command -v redis-server >/dev/null || { sudo=$$([ $$(id -u) = 0 ] || echo sudo); \
		$$sudo apt-get update -q && $$sudo apt-get install -q -y --no-install-recommends redis-server; }

.PHONY: page
page: browser ## take the screenshot of the page for the README
	cd e2e && go test -count=1 -run Picture ./page -screenshot $(CURDIR)/docs/page.png

.PHONY: diagrams
diagrams: ## draw the SVG files of docs/diagrams from the texts beside them
	@set -e; for f in docs/diagrams/*.d2; do go run oss.terrastruct.com/d2@v0.7.2 --theme 0 --dark-theme 200 --pad 20 $$f $${f%.d2}.svg; done

.PHONY: bench
bench: ## compare with client-go; writes bench/RESULTS.md; takes about 20 minutes
	cd bench && go run . -write RESULTS.md

.PHONY: bench-quick
bench-quick: ## compare with client-go in two minutes, with smaller sizes; only prints
	cd bench && go run . -quick

.PHONY: bench-manager
bench-manager: ## compare controller-runtime managers; writes e2e/manager/compare/RESULTS.md
	cd e2e && go run ./manager/compare -write manager/compare/RESULTS.md

.PHONY: bench-disk
bench-disk: ## measure a million objects on disk and in memory; writes store/disk/measure/RESULTS.md; takes about 10 minutes and 10 GiB of memory
	cd store/disk && go run ./measure -objects 1000000 -write measure/RESULTS.md

.PHONY: bench-valkey
bench-valkey: valkey ## measure a million objects on a server; writes store/valkey/measure/RESULTS.md; takes about 10 minutes and 15 GiB of memory
	cd store/valkey && go run ./measure -objects 1000000 -write measure/RESULTS.md

.PHONY: bench-operator
bench-operator: ## compare the example operator with one on controller-runtime; takes about 15 minutes
	cd e2e && go run ./operator/compare -write operator/compare/RESULTS.md

.PHONY: bench-shards
bench-shards: ## measure a controller over 1 to 8 replicas; writes e2e/shards/costs/RESULTS.md; takes 10 minutes
	cd e2e && go run ./shards/costs -write shards/costs/RESULTS.md

.PHONY: bench-relay
bench-relay: ## measure watchers on the API server and on a relay; writes e2e/relay/costs/RESULTS.md; takes 10 minutes
	cd e2e && go run ./relay/costs -write relay/costs/RESULTS.md

.PHONY: figures
figures: ## renew all result files, one after the other, on an idle machine; takes about an hour and a half
	$(MAKE) -j1 bench bench-disk bench-valkey bench-manager bench-operator bench-shards bench-relay

.PHONY: relay-fleet
relay-fleet: ## kill and upgrade a relay with 1,000 agents; takes 5 minutes
	cd e2e && go test -race -count=1 -timeout 0 -run TestAFleet -v ./relay -relay-agents 1000

# Needs no C library, so that the program can be the only file of a container image.
.PHONY: relay
relay: ## build the relay as one static program, bin/relay
	cd relay && CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/bin/relay ./cmd/relay

.PHONY: stress
stress: ## run the root module's tests 100 times each on one processor, on all, and on eight
	@set -e; for p in 1 "" 8; do echo "== GOMAXPROCS=$$p"; \
		GOMAXPROCS=$$p go test -race -short -count=100 -timeout=4h . ./internal/... ./informertest ./enqueue ./store/...; done

# Searches the directories with fuzz tests, and lists their targets with "go test -list".
FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (default: 30s)
	@set -e; for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n1 dirname | sort -u); do \
		list=$$(go test -list '^Fuzz' $$dir) || { echo "$$list"; exit 1; }; \
		for target in $$(echo "$$list" | grep '^Fuzz'); do \
			echo "== $$dir $$target"; go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$dir; done; done

.PHONY: mutations
mutations: ## plant faults in a copy of the library, and see which tests notice
	@$(TOOL) ./mutate -root .. -table "$(TABLE)"

# A second run leaves out the faults that the file has already. MATRIXFLAGS=-summary runs no tests.
MATRIXFLAGS ?=
.PHONY: mutations-matrix
mutations-matrix: ## plant the faults, and keep in tools/mutate/matrix.txt which packages notice each; takes hours
	@$(TOOL) ./mutate -root .. -matrix mutate/matrix.txt $(MATRIXFLAGS)

SOAK ?= 10m
.PHONY: soak
soak: chaos shards-histories relay-fleet together ## run what takes too long for each change: chaos, fleets, histories of replicas, kube-apiserver; takes hours
	go test -race -count=1 -timeout=60m $(TESTFLAGS) -p 1 ./bench/... ./e2e/... ./e2e/kubernetes/...

.PHONY: chaos
chaos: ## disturb informers of a real API server for SOAK (default: 10m), then run them undisturbed for as long
	cd e2e && go test -count=1 -timeout 0 -run 'Chaos|Soak' -v ./chaos -chaos $(SOAK) -soak $(SOAK) -table "$(TABLE)"

TOGETHER ?= 2h
.PHONY: together
together: ## run most parts of the library at once over 30,000 Pods of two clusters, for TOGETHER (default: 2h), and print the memory over time
	cd e2e && go test -count=1 -timeout 0 -run Together -v ./together -together $(TOGETHER) -pods 30000 -table "$(TABLE)"

HISTORIES ?= 50
.PHONY: shards-histories
shards-histories: ## play HISTORIES (default: 50) random histories of a sharded controller; takes about half an hour
	cd e2e && go test -race -count=1 -timeout 0 -run Histories -v ./shards -shards-histories $(HISTORIES)

.PHONY: lines
lines: ## count the lines that a person must read, for each package
	@$(TOOL) ./lines -root ..

.PHONY: licences
licences: ## list the licences of all modules in the build of a module's users
	@$(TOOL) ./licences -root .. $(PUBLISHED)

.PHONY: vulncheck
vulncheck: bin/govulncheck ## look for known vulnerabilities; with VULNCHECK=required it fails without the database
	@$(TOOL) ./vulncheck -root .. -govulncheck ../bin/govulncheck $(PUBLISHED)

.PHONY: apidiff
apidiff: ## compare the exported API with the last tag of each module; VERSION=v2.0.0 names the next release
	@$(TOOL) ./apidiff -root .. -version "$(VERSION)" $(PUBLISHED)

# Also checks that the go.mod files of the templates are tidy.
.PHONY: new-program
new-program: ## make a program of each template with gonew, of HEAD as if it were released, and test it
	cd tools && GOWORK=off go test -count=1 -run ANewProgram -v ./release

.PHONY: release-check
release-check: new-program ## prove that HEAD can be released as VERSION, such as v0.1.0
	@$(TOOL) ./release -root .. -version "$(VERSION)" $(PUBLISHED) $(TEMPLATES)

.PHONY: release-prepare
release-prepare: ## make the modules require each other in VERSION
	@$(TOOL) ./release -root .. -version "$(VERSION)" -write $(PUBLISHED) $(TEMPLATES)

bin/govulncheck: tools/go.mod
	cd tools && GOWORK=off go build -o ../$@ golang.org/x/vuln/cmd/govulncheck

# The tools have their own module, so that the linter's dependencies are in no user's build.
$(LINT): tools/go.mod
	cd tools && GOWORK=off go build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
