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
)

func TestSharedHandlersThatPanic(t *testing.T) {
	sharedCases{
		"crash the process in an add":    func(t *testing.T, s shared) { panicCrashes(t, s, "add a@1 initial") },
		"crash the process in an update": func(t *testing.T, s shared) { panicCrashes(t, s, "update a@1->a@2") },
		"crash the process in a delete":  func(t *testing.T, s shared) { panicCrashes(t, s, "delete a@3") },
	}.inRealTime(t)
	sharedCases{
		"go on if panics are not to crash": func(t *testing.T, s shared) {
			seen := survivePanics(t)
			src := two()
			inf, h := s.new(src, 0), heard{hook: panicAt("update a@1->a@3")}
			handle(t, inf, &h)
			runShared(t, inf)
			change(t, src, "a=2", "a=3", "-b")
			sleepBubble(time.Minute)
			h.expect(t, "add a@1 initial", "add b@2 initial", "update a@1->a@3", "update a@3->a@4", "delete b@5")
			if len(seen) != 1 || <-seen != "of the handler" {
				t.Error("the panic handlers were not called for the panic")
			}
			checkShared(t, inf, "a@4")
		},
		"do not hold up the others": func(t *testing.T, s shared) {
			survivePanics(t)
			src := one()
			inf, panics := s.new(src, 0), heard{hook: func(string) { panic("of each call") }}
			calm := listen(t, inf)
			reg := handle(t, inf, &panics)
			runShared(t, inf)
			change(t, src, "a=2", "a=3")
			calm.expect(t, "add a@1 initial", "update a@1->a@2", "update a@2->a@3")
			checkSynced(t, true, calm.reg)
			sleepBubble(time.Minute)
			// Our informer counts a call that panics as done. Otherwise a wait for the handler's
			// sync would never end.
			checkSynced(t, s.ours(), reg)
			panics.expect(t, "add a@1 initial", "update a@1->a@2", "update a@2->a@3")
		},
	}.inBubbles(t)
}

const childEnv = "INFORMER_SHARED_CHILD"

func isChild() bool { return os.Getenv(childEnv) != "" }

// child runs the calling test in a new process, in which isChild is true. It returns the
// output of the process and the error with which it ended.
func child(t *testing.T, env ...string) (string, error) {
	t.Helper()
	var pattern []string
	for name := range strings.SplitSeq(t.Name(), "/") {
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
		if err == nil || !strings.Contains(out, "panic: of the handler") || !strings.Contains(out, "the panic handler saw: of the handler") {
			t.Errorf("the process did not call the panic handlers and crash (%v):\n%s", err, out)
		}
		return
	}
	seePanics(t, func(p any) { fmt.Println("the panic handler saw:", p) })
	synctest.Test(t, func(t *testing.T) {
		src, inf := s.over(one())
		handle(t, inf, &heard{hook: panicAt(at)})
		runShared(t, inf)
		change(t, src, "a=2")
		synctest.Wait()
		change(t, src, "-a")
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

// survivePanics makes panics not crash the process until the end of the test. It returns a
// channel of the panics.
func survivePanics(t *testing.T) <-chan any {
	t.Helper()
	seen := make(chan any, 10)
	seePanics(t, func(p any) { seen <- p })
	utilruntime.ReallyCrash = false
	t.Cleanup(func() { utilruntime.ReallyCrash = true })
	return seen
}

func TestSharedMutationDetector(t *testing.T) {
	sharedCases{
		"finds what was changed of the first list": func(t *testing.T, s shared) { checkDetector(t, s, "a") },
		"finds what was changed of an update":      func(t *testing.T, s shared) { checkDetector(t, s, "b") },
		"finds nothing if nothing was changed":     func(t *testing.T, s shared) { checkDetector(t, s, "") },
	}.inRealTime(t)
}

// checkDetector changes the object of that name in the cache, in a child process, and fails the
// test unless the process crashes for it.
func checkDetector(t *testing.T, s shared, changed string) {
	if !isChild() {
		out, err := child(t, "KUBE_CACHE_MUTATION_DETECTOR=true")
		found := err != nil && strings.Contains(out, "ConfigMap modified") && !strings.Contains(out, "DATA RACE")
		if changed == "" && err != nil || changed != "" && !found {
			t.Errorf("the process ended with %v:\n%s", err, out)
		}
		return
	}
	synctest.Test(t, func(t *testing.T) {
		src, inf, _ := follow(t, s, two())
		change(t, src, "b=2", "c=1", "-c")
		sleepBubble(time.Minute)
		if changed != "" {
			cached(t, inf, changed).(configMap).Data["value"] = "changed"
		}
		change(t, src, "d=1") // must come after the change, to avoid a data race
		sleepBubble(time.Minute)
	})
}
