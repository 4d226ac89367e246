package parity_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
)

func TestSharedHandlersThatPanic(t *testing.T) {
	sharedCases{
		"crash the process in an add":    func(t *testing.T, s shared) { panicCrashes(t, s, "add a@1 initial") },
		"crash the process in an update": func(t *testing.T, s shared) { panicCrashes(t, s, "update a@1->a@2") },
		"crash the process in a delete":  func(t *testing.T, s shared) { panicCrashes(t, s, "delete a@3") },
	}.inRealTime(t)
	sharedCases{
		"go on if panics are not to crash": panicIsSkipped,
		"hold nobody up":                   panicOfOneHandler,
	}.inBubbles(t)
}

func TestSharedMutationDetector(t *testing.T) {
	sharedCases{
		"finds what was changed of the first list": func(t *testing.T, s shared) { mutationIsFound(t, s, "a") },
		"finds what was changed of an update":      func(t *testing.T, s shared) { mutationIsFound(t, s, "b") },
		"finds nothing if nothing was changed":     mutationIsNot,
	}.inRealTime(t)
}

const childEnv = "INFORMER_SHARED_CHILD"

func isChild() bool { return os.Getenv(childEnv) != "" }

// child runs the calling test in a new process, in which isChild is true. It returns the
// output of the process and the error with which it ended.
func child(t *testing.T, env ...string) (string, error) {
	t.Helper()
	var pattern []string
	for _, name := range strings.Split(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(name)+"$")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", strings.Join(pattern, "/"), "-test.v")
	cmd.Env = append(append(cmd.Environ(), childEnv+"=1"), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func panicCrashes(t *testing.T, s shared, at string) {
	if !isChild() {
		out, err := child(t)
		if err == nil || !strings.Contains(out, "panic: of the handler") {
			t.Errorf("the panic did not crash the process (%v):\n%s", err, out)
		}
		if !strings.Contains(out, "the panic handler saw: of the handler") {
			t.Errorf("the panic handlers were not called:\n%s", out)
		}
		return
	}
	seePanics(t, func(p any) { fmt.Println("the panic handler saw:", p) })
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		inf := s.new(src, 0)
		handle(t, inf, &heard{hook: panicAt(at)})
		runShared(t, inf)
		src.Apply(object("a", "2"))
		synctest.Wait()
		remove(t, src, "a")
		sleepBubble(time.Minute)
	})
}

// panicAt returns a hook that panics at the given event.
func panicAt(at string) func(string) {
	return func(event string) {
		if event == at {
			panic("of the handler")
		}
	}
}

// seePanics makes see the only handler of panics until the end of the test, in place of the
// one that logs them.
func seePanics(t *testing.T, see func(p any)) {
	t.Helper()
	before := utilruntime.PanicHandlers
	t.Cleanup(func() { utilruntime.PanicHandlers = before })
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, p any) { see(p) }}
}

func survivePanics(t *testing.T) {
	t.Helper()
	utilruntime.ReallyCrash = false
	t.Cleanup(func() { utilruntime.ReallyCrash = true })
}

func panicIsSkipped(t *testing.T, s shared) {
	seen := make(chan any, 10)
	seePanics(t, func(p any) { seen <- p })
	survivePanics(t)
	src := two()
	inf := s.new(src, 0)
	h := heard{hook: panicAt("update a@1->a@3")}
	handle(t, inf, &h)
	runShared(t, inf)
	src.Apply(object("a", "2"))
	src.Apply(object("a", "3"))
	remove(t, src, "b")
	sleepBubble(time.Minute)
	h.expect(t, "add a@1 initial", "add b@2 initial", "update a@1->a@3", "update a@3->a@4", "delete b@5")
	if len(seen) != 1 || <-seen != "of the handler" {
		t.Error("the panic handlers were not called for the panic")
	}
	checkShared(t, inf, "a@4")
}

func panicOfOneHandler(t *testing.T, s shared) {
	seePanics(t, func(any) {})
	survivePanics(t)
	src := informertest.NewSource(object("a", "1"))
	inf := s.new(src, 0)
	panics := heard{hook: func(string) { panic("of each call") }}
	var calm heard
	calmReg := handle(t, inf, &calm)
	panicsReg := handle(t, inf, &panics)
	runShared(t, inf)
	for i := range 5 {
		src.Apply(object("a", fmt.Sprint(i+2)))
	}
	calm.expect(t, "add a@1 initial", "update a@1->a@2", "update a@2->a@3", "update a@3->a@4", "update a@4->a@5", "update a@5->a@6")
	checkSynced(t, "the other handler", true, calmReg)
	sleepBubble(time.Minute)
	// Our informer counts a call that panics as done. Otherwise a wait for the handler's sync
	// would never end.
	checkSynced(t, "the handler that panics", s.ours(), panicsReg)
	if n := len(panics.take()); n != 6 {
		t.Errorf("the handler that panics got %d calls", n)
	}
}

func mutationIsFound(t *testing.T, s shared, of string) {
	if !isChild() {
		out, err := child(t, "KUBE_CACHE_MUTATION_DETECTOR=true")
		if err == nil || !strings.Contains(out, "ConfigMap modified") || strings.Contains(out, "DATA RACE") {
			t.Errorf("the change did not crash the process (%v):\n%s", err, out)
		}
		return
	}
	detect(t, s, func(inf cache.SharedIndexInformer) {
		cached(t, inf, of).(configMap).Data["value"] = "changed"
	})
}

func mutationIsNot(t *testing.T, s shared) {
	if !isChild() {
		if out, err := child(t, "KUBE_CACHE_MUTATION_DETECTOR=true"); err != nil {
			t.Errorf("the process crashed (%v):\n%s", err, out)
		}
		return
	}
	detect(t, s, func(cache.SharedIndexInformer) {})
}

func detect(t *testing.T, s shared, mutate func(cache.SharedIndexInformer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		src := two()
		inf := s.new(src, 0)
		handle(t, inf, &heard{})
		runShared(t, inf)
		src.Apply(object("b", "2"))
		src.Apply(object("c", "1"))
		remove(t, src, "c")
		sleepBubble(time.Minute)
		mutate(inf)
		src.Apply(object("d", "1")) // must come after mutate, to avoid a data race
		sleepBubble(time.Minute)
	})
}
