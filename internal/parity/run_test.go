package parity_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestSharedRun(t *testing.T) {
	sharedCases{
		"ends with its channel": func(t *testing.T, s shared) {
			src, inf := s.over(two())
			h := listen(t, inf)
			stop, done := make(chan struct{}), make(chan struct{})
			checkStopped(t, inf, false)
			go func() {
				defer close(done)
				inf.Run(stop)
			}()
			h.expect(t, "add a@1 initial", "add b@2 initial")
			checkStopped(t, inf, false)
			close(stop)
			<-done
			checkStopped(t, inf, true)
			checkSynced(t, true, inf, h.reg) // as before the stop
			synctest.Wait()
			equal(t, "watches after the stop", src.Watches(), 0)
			change(t, src, "a=2")
			h.expect(t)
			checkShared(t, inf, "a@1", "b@2") // the cache can still be read
		},
		"with a closed channel does nothing": func(t *testing.T, s shared) {
			inf := s.new(two(), 0)
			h := listen(t, inf)
			closed := make(chan struct{})
			close(closed)
			inf.Run(closed)
			checkStopped(t, inf, true)
			checkSynced(t, false, inf, h.reg)
			h.expect(t)
		},
		"the second time does nothing": func(t *testing.T, s shared) {
			src, inf, h := follow(t, s, two())
			stop := make(chan struct{})
			inf.Run(stop)
			inf.RunWithContext(t.Context())
			close(stop)
			synctest.Wait()
			checkStopped(t, inf, false)
			change(t, src, "a=2")
			h.expect(t, "add a@1 initial", "add b@2 initial", "update a@1->a@3")
		},
		"after a stop does nothing": func(t *testing.T, s shared) {
			src, inf := s.over(two())
			h := listen(t, inf)
			runShared(t, inf)()
			h.take()
			before := len(src.Requests())
			inf.RunWithContext(t.Context())
			h.expect(t)
			equal(t, "requests", len(src.Requests())-before, 0)
			checkStopped(t, inf, true)
		},
		"does not return in the middle of a call": func(t *testing.T, s shared) {
			inf, g := s.new(one(), 0), make(gate)
			handle(t, inf, &heard{hook: g.wait})
			stop := runShared(t, inf)
			done := make(chan struct{})
			go func() { stop(); close(done) }()
			synctest.Wait()
			equal(t, "returned in the middle of a call", channel.Closed(done), false)
			close(g)
			<-done
		},
		"lets what waits go when it is stopped": func(t *testing.T, s shared) {
			src, g := one(), make(gate)
			inf, h := s.new(src, 0), heard{hook: g.wait}
			handle(t, inf, &h)
			stop := runShared(t, inf)
			change(t, src, "a=2", "a=3", "a=4")
			synctest.Wait()
			time.AfterFunc(time.Minute, func() { close(g) })
			stop()
			h.expect(t, "add a@1 initial")
		},
		"is stopped for good": func(t *testing.T, s shared) {
			inf := s.new(two(), 0)
			runShared(t, inf)()
			checkStopped(t, inf, true)
			var h heard
			_, plain := inf.AddEventHandler(&h)
			_, period := inf.AddEventHandlerWithResyncPeriod(&h, time.Minute)
			_, opts := inf.AddEventHandlerWithOptions(&h, cache.HandlerOptions{})
			for _, err := range []error{plain, period, opts} {
				wantStopped(t, s, err, " was not added to shared informer because it has stopped already")
			}
			wantStopped(t, s, inf.AddIndexers(byValue()), "indexer was not added because it has stopped already")
			h.expect(t)
		},
		"can be stopped while the source is refused": func(t *testing.T, s shared) {
			src := two()
			refuseLists(src, -1)
			stop := runShared(t, s.new(src, 0))
			sleepBubble(hour)
			testkit.AtMost(t, "the time that the stop takes", testkit.Took(stop), time.Second)
		},
	}.inBubbles(t)
}

func checkStopped(t *testing.T, inf cache.SharedInformer, want bool) {
	t.Helper()
	equal(t, "stopped", inf.IsStopped(), want)
}

// wantStopped fails the test unless the text of err ends with client-go's words and, for our
// informers, err wraps ErrStopped.
func wantStopped(t *testing.T, s shared, err error, words string) {
	t.Helper()
	if err == nil || !strings.HasSuffix(err.Error(), words) || errors.Is(err, informer.ErrStopped) != s.ours() {
		t.Errorf("error is %v", err)
	}
}
