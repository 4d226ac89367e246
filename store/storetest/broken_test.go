package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/storetest"
)

// broken is a store with one fault, and the checks that must find it.
type broken struct {
	fault   string
	make    func() cache.Store
	durable func() informer.Durable // instead of make
	opts    storetest.DurableOptions
	found   []string // "group/check" of each, or the beginning of it
	says    string   // text that the test must print
}

func (b broken) check(t *testing.T) {
	if b.durable == nil {
		storetest.Run(t, func(*testing.T) cache.Store { return b.make() }, storetest.Options{})
		return
	}
	storetest.RunDurable(t, func(*testing.T) informer.Durable { return b.durable() }, b.opts)
}

func brokenStores() []broken {
	durables := slices.Concat(brokenScans, brokenDurables)
	for i, b := range durables {
		if b.opts.Reopen == nil {
			durables[i].opts = reopening(0)
		}
	}
	return slices.Concat(brokenPlain, brokenIndexers, durables)
}

// inChild is set in the process that runs the suite on the broken stores.
const inChild = "STORETEST_BROKEN_STORES"

// TestBrokenStores fails. TestTheSuiteFindsEveryFault runs it in a process of its own, because
// a suite that fails makes its test fail too.
func TestBrokenStores(t *testing.T) {
	if os.Getenv(inChild) == "" {
		t.Skip("it is for TestTheSuiteFindsEveryFault")
	}
	for _, b := range brokenStores() {
		t.Run(b.fault, b.check)
	}
}

func TestTheSuiteFindsEveryFault(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestBrokenStores$", "-test.v", "-test.short")
	cmd.Env = append(cmd.Environ(), inChild+"=1")
	raw, err := cmd.CombinedOutput()
	out := string(raw)
	if err == nil {
		t.Fatal("the suite has passed")
	}
	failed := map[string][]string{} // failed checks by fault
	for _, match := range regexp.MustCompile(`(?m)^ *--- FAIL: TestBrokenStores/([^/\n]+)/(.+) \([0-9.]+s\)$`).FindAllStringSubmatch(out, -1) {
		failed[match[1]] = append(failed[match[1]], match[2])
	}
	for _, b := range brokenStores() {
		got := failed[underscored(b.fault)]
		if len(got) == 0 {
			t.Errorf("a store of which %s passes", b.fault)
			continue
		}
		if !strings.Contains(out, b.says) {
			t.Errorf("that %s is found, but not explained by %q", b.fault, b.says)
		}
		for _, want := range b.found {
			if !slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, underscored(want)) }) {
				t.Errorf("that %s is not found by %q, but by %q", b.fault, want, got)
			}
		}
	}
	if whys, fails := strings.Count(out, "Why: "), strings.Count(out, "\n            --- FAIL: "); whys != fails || fails == 0 {
		t.Errorf("%d checks have failed, and %d of them have said what for", fails, whys)
	}
	if t.Failed() {
		t.Log(out)
	}
}

// underscored returns the name of a subtest as it appears in the output.
func underscored(name string) string { return strings.ReplaceAll(name, " ", "_") }
