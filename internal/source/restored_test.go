package source_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// Tests with a server whose etcd was restored from a backup.

func TestAServerThatWentBackIsNoticedAtAWarmStart(t *testing.T) {
	bothWays(t, func(t *testing.T, opts options, full string) {
		src := informertest.NewSource(object("kept", "1"), object("changed", "1"), object("deleted", "1"))
		backup := src.ResourceVersion()
		_, _ = src.Update(object("changed", "2"))
		_, _ = src.Delete(keyOf("deleted"))
		_, _ = src.Create(object("undone", "1"))
		_, _ = src.Update(object("kept", "2"))
		store := informertest.NewDurable()
		oneRun(t, src, store, opts)
		if err := src.Restore(backup); err != nil {
			t.Fatal(err)
		}
		// This update has the version of the undone update, but other content.
		_, _ = src.Update(object("changed", "3"))
		n := len(src.Requests())
		var errs errorLog
		opts.ErrorHandler = errs.Handle
		store = store.Reopen()
		r := oneRun(t, src, store, opts)
		if got := asked(src, n); !strings.HasPrefix(got, "probe, list, watch") {
			t.Errorf("the source was asked for: %s", got)
		}
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "gone back in time") {
			t.Errorf("reported: %v", got)
		}
		if got := r.View()[keyOf("changed")].Data["value"]; got != "3" {
			t.Errorf("changed is %q", got)
		}
		testkit.CheckKept(t, store, src.ResourceVersion())
	})
}

// After the list, one object is still wrong, because its version is also the version of a lost
// state. The next event of that object corrects it.
func TestAServerPastTheKnownVersionIsNoticedByAList(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("kept", "1"), object("deleted", "1"))
		backup := src.ResourceVersion()
		_, _ = src.Create(object("undone", "1"))
		_, _ = src.Update(object("kept", "lost"))
		inf, r := watched(t, src, options{Queue: queue, ErrorHandler: ignore})
		sleepBubble(time.Minute) // a watch that ends early would count as a failure
		if err := src.Restore(backup); err != nil {
			t.Fatal(err)
		}
		_, _ = src.Delete(keyOf("deleted"))
		_, _ = src.Update(object("kept", "2")) // gets the version of the lost update
		_, _ = src.Create(object("new", "1"))
		sleepBubble(2 * time.Minute)
		if r.View()[keyOf("undone")] == nil {
			t.Error("an object whose create was undone is gone before the list, although no request failed")
		}
		src.Expire()
		sleepBubble(2 * time.Minute)
		if got := r.View(); len(got) != 2 || got[keyOf("kept")] == nil || got[keyOf("new")] == nil {
			t.Errorf("after the list the watcher knows %v", got)
		} else if value := got[keyOf("kept")].Data["value"]; value != "lost" {
			t.Errorf("kept is %q, so the limit that doc.go documents no longer exists", value)
		}
		_, _ = src.Update(object("kept", "3"))
		synctest.Wait()
		checkView(t, r, src)
		checkStore(t, inf, src)
	})
}

// A front that closes connections without an answer makes client-go repeat a request by itself, so that no request
// seems to fail.
func TestAServerThatWentBackIsNoticedBehindAFrontThatClosesConnections(t *testing.T) {
	for name, broken := range map[string]testkit.Answer{
		"closed":              testkit.Breaks(io.EOF),
		"closed in an answer": testkit.Breaks(io.ErrUnexpectedEOF),
		"busy":                testkit.Refuses(503, "ServiceUnavailable", "Retry-After", "1"),
	} {
		for _, away := range []time.Duration{1500 * time.Millisecond, 5 * time.Second, time.Minute} {
			t.Run(name+" for "+away.String(), func(t *testing.T) {
				bothWays(t, func(t *testing.T, opts options, _ string) {
					w := newWire()
					backup := w.Source.ResourceVersion()
					_, _ = w.Source.Update(object("a", "2"))
					_, _ = w.Source.Delete(keyOf("b"))
					var errs errorLog
					opts.ErrorHandler = errs.Handle
					inf, r := watched(t, typedClient(w), opts)
					sleepBubble(time.Minute)
					w.Odd(func(*http.Request) testkit.Answer { return broken })
					if err := w.Source.Restore(backup); err != nil {
						t.Fatal(err)
					}
					_, _ = w.Source.Update(object("a", "3"))
					sleepBubble(away)
					w.Odd(nil)
					sleepBubble(2 * time.Minute)
					checkView(t, r, w.Source)
					checkStore(t, inf, w.Source)
					if got := errs.Take(); len(got) == 0 || !strings.Contains(got[len(got)-1].Error(), "gone back in time") {
						t.Errorf("reported: %v", got)
					}
				})
			})
		}
	}
}
