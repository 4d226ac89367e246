package informer_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// A server whose etcd was restored from a backup.

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
		// The version of the update that was undone, and another content.
		_, _ = src.Update(object("changed", "3"))
		n := len(src.Requests())
		var errs errorLog
		opts.ErrorHandler = errs.handle
		store = store.Reopen()
		r := oneRun(t, src, store, opts)
		if got := asked(src, n); !strings.HasPrefix(got, "probe, list, watch") {
			t.Errorf("the source was asked for: %s", got)
		}
		if got := errs.take(); len(got) != 1 || !strings.Contains(got[0].Error(), "gone back in time") {
			t.Errorf("reported: %v", got)
		}
		if got := r.View()[keyOf("changed")].Data["value"]; got != "3" {
			t.Errorf("changed is %q", got)
		}
		checkKept(t, store, src.ResourceVersion())
	})
}

// away is a source that cannot be reached until it is back.
type away struct {
	*source
	gone  atomic.Bool
	cause error
}

func dialing(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

func (a *away) err() error {
	if !a.gone.Load() {
		return nil
	}
	return a.cause
}

func (a *away) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := a.err(); err != nil {
		return nil, err
	}
	return a.source.WatchWithContext(ctx, opts)
}

func (a *away) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if err := a.err(); err != nil {
		return nil, err
	}
	return a.source.ListWithContext(ctx, opts)
}

func TestAServerThatWentBackIsNoticedAfterAnOutage(t *testing.T) {
	for name, cause := range map[string]error{
		"the watch is tried again": dialing(syscall.ECONNREFUSED), // by the reflector
		"listed first":             dialing(errors.New("no route")),
		"a gateway answers":        apierrors.NewServiceUnavailable("no upstream"),
		"too many requests":        apierrors.NewTooManyRequests("storage is (re)initializing", 1),
		"a proxy of its own mind":  errors.New("<html>"),
	} {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				src := informertest.NewSource(object("a", "1"), object("b", "1"))
				backup := src.ResourceVersion()
				_, _ = src.Update(object("a", "2"))
				_, _ = src.Delete(keyOf("b"))
				server := &away{source: src, cause: cause}
				var errs errorLog
				inf, r := watched(t, server, options{Queue: queue, ErrorHandler: errs.handle})

				server.gone.Store(true)
				if err := src.Restore(backup); err != nil {
					t.Fatal(err)
				}
				_, _ = src.Update(object("a", "3")) // again the version that "a" is known with
				sleepBubble(10 * time.Second)
				server.gone.Store(false)
				n := len(src.Requests())
				sleepBubble(2 * time.Minute)
				if got := asked(src, n); !strings.HasPrefix(got, "probe, list, watch") && !strings.HasPrefix(got, "probe, stream") {
					t.Errorf("the source was asked for: %s", got)
				}
				checkView(t, r, src)
				checkStore(t, inf, src)
				if got := r.View()[keyOf("a")].Data["value"]; got != "3" {
					t.Errorf("a is %q", got)
				}
				got := errs.take()
				if !strings.Contains(got[len(got)-1].Error(), "gone back in time") {
					t.Errorf("reported: %v", got)
				}
			})
		})
	}
}

func TestAServerThatWasAwayIsProbedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		server := &away{source: src, cause: dialing(syscall.ECONNREFUSED)}
		var errs errorLog
		inf := newInformer(t, server, options{ErrorHandler: errs.handle})
		informertest.Run(t, inf)
		sleepBubble(10 * time.Second)
		at, n := src.ResourceVersion(), len(src.Requests())
		server.gone.Store(true)
		src.Disconnect()
		sleepBubble(10 * time.Second)
		server.gone.Store(false)
		sleepBubble(hour)
		if got, want := asked(src, n), "probe, watch from "+at; !strings.HasPrefix(got, want) || strings.Count(got, "probe") > 1 {
			t.Errorf("the source was asked for: %s\nwant: %s", got, want)
		}
		if got := errs.take(); len(got) != 1 {
			t.Errorf("reported: %v", got)
		}
	})
}

// TestAServerThatWentBackIsNoticedThoughItFailsInTwoWays: the second failure is that of the
// probe.
func TestAServerThatWentBackIsNoticedThoughItFailsInTwoWays(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		backup := src.ResourceVersion()
		_, _ = src.Update(object("a", "2"))
		_, _ = src.Update(object("a", "lost"))
		_, r := watched(t, src, options{Queue: queue, ErrorHandler: ignore})
		throttled := apierrors.NewTooManyRequests("storage is (re)initializing", 1)
		src.Fail(informertest.VerbWatch, dialing(syscall.ECONNREFUSED), 1)
		src.Fail(informertest.VerbWatch, throttled, 1)
		src.Fail(informertest.VerbList, throttled, 1)
		if err := src.Restore(backup); err != nil {
			t.Fatal(err)
		}
		_, _ = src.Update(object("a", "3"))
		sleepBubble(2 * time.Minute)
		if got := r.View()[keyOf("a")].Data["value"]; got != "3" {
			t.Errorf("a is %q", got)
		}
	})
}

// TestAServerThatHasComePastWhatIsKnownIsNoticedByAList: but for what has the very version
// of a state that was lost, which the next event puts right.
func TestAServerThatHasComePastWhatIsKnownIsNoticedByAList(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("kept", "1"), object("deleted", "1"))
		backup := src.ResourceVersion()
		_, _ = src.Create(object("undone", "1"))
		_, _ = src.Update(object("kept", "lost"))
		inf, r := watched(t, src, options{Queue: queue, ErrorHandler: ignore})
		sleepBubble(time.Minute) // a watch that ends at once is a failure
		if err := src.Restore(backup); err != nil {
			t.Fatal(err)
		}
		_, _ = src.Delete(keyOf("deleted"))
		_, _ = src.Update(object("kept", "2")) // of the version of what was lost
		_, _ = src.Create(object("new", "1"))
		sleepBubble(2 * time.Minute)
		if r.View()[keyOf("undone")] == nil {
			t.Error("nothing has failed, and yet what was undone is gone before the list")
		}
		src.Expire()
		sleepBubble(2 * time.Minute)
		if got := r.View(); len(got) != 2 || got[keyOf("kept")] == nil || got[keyOf("new")] == nil {
			t.Errorf("after the list there is %v", got)
		} else if value := got[keyOf("kept")].Data["value"]; value != "lost" {
			t.Errorf("the limit that doc.go tells of is none: kept is %q", value)
		}
		_, _ = src.Update(object("kept", "3"))
		synctest.Wait()
		checkView(t, r, src)
		checkStore(t, inf, src)
	})
}
