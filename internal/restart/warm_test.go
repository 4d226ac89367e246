package restart_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// Tests of restarts over a store that outlives the process.

func TestAWarmStartListsNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, opts options, full string) {
		src := informertest.NewSource(object("kept", "1"), object("changed", "1"), object("deleted", "1"))
		store := informertest.NewDurable()
		oneRun(t, src, store, opts)
		at := src.ResourceVersion()
		checkKept(t, store, at)
		n := len(src.Requests())

		_, _ = src.Update(object("changed", "2"))
		_, _ = src.Delete(keyOf("deleted"))
		_, _ = src.Create(object("created", "1"))
		store.LoseOnCrash(0)
		store = store.Reopen()
		r := oneRun(t, src, store, opts)
		if got, want := asked(src, n), "probe, watch from "+at; got != want {
			t.Errorf("the source was asked for: %s\nwant: %s", got, want)
		}
		got := told(r)
		slices.Sort(got[:3]) // the initial state comes in no order
		if diff := cmp.Diff([]string{
			"initial added changed", "initial added deleted", "initial added kept",
			"watch updated changed", "watch deleted deleted", "watch added created",
		}, got); diff != "" {
			t.Errorf("events of the watcher (-want +got):\n%s", diff)
		}
		checkKept(t, store, src.ResourceVersion())
	})
}

func TestTwoInformersCannotRunOverOneDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
		first := newInformer(t, src, options{Name: "first", Durable: store})
		stop := informertest.Run(t, first)
		second := newInformer(t, informertest.NewSource[configMap](), options{Name: "second", Durable: store})
		reg := addWatcher(t, second, &recorder{}, informer.WatcherOptions{})
		err := second.Run(t.Context())
		if err == nil || err.Error() != "informer second: informer first runs over the same Options.Durable" {
			t.Errorf("Run returned %v", err)
		}
		<-reg.Stopped()
		if err := second.WaitForSync(t.Context()); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("WaitForSync returned %v", err)
		}
		checkStore(t, first, src)
		stop()
		oneRun(t, src, store, options{Name: "third"})
	})
}

func TestAWarmStartIsSyncedOnceTheWatchIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		store := informertest.NewDurable()
		oneRun(t, src, store, options{})
		src.Fail("watch", errors.New("no"), 1)
		store = store.Reopen()
		var errs errorLog
		inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
		start(t, inf)
		synctest.Wait()
		checkStore(t, inf, src) // the stored objects can be read already
		if inf.HasSynced() {
			t.Error("synced without a watch")
		}
		begun := time.Now()
		if err := inf.WaitForSync(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("synced after %v", took)
		}
		if got := inf.ResourceVersion(); got != src.ResourceVersion() {
			t.Errorf("ResourceVersion is %q, not %q", got, src.ResourceVersion())
		}
		if got := errs.Take(); len(got) != 1 {
			t.Errorf("reported: %v", got)
		}
	})
}

func TestAnExpiredBookmarkCostsOneList(t *testing.T) {
	for name, refuse := range map[string]bool{"in the stream": false, "as the answer": true} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, opts options, full string) {
				src := informertest.NewSource(object("kept", "1"), object("deleted", "1"))
				store := informertest.NewDurable()
				oneRun(t, src, store, opts)
				at := src.ResourceVersion()
				n := len(src.Requests())
				_, _ = src.Delete(keyOf("deleted"))
				_, _ = src.Create(object("created", "1"))
				src.Compact()
				src.SetFaults(informertest.Faults{RefuseExpired: refuse})
				store = store.Reopen()
				r := oneRun(t, src, store, opts)
				want := "probe, watch from " + at + " gone, " + full
				if full == "list" {
					want += ", watch from " + src.ResourceVersion()
				}
				if got := asked(src, n); got != want {
					t.Errorf("the source was asked for: %s\nwant: %s", got, want)
				}
				got := told(r)
				slices.Sort(got[:2])
				if diff := cmp.Diff([]string{"initial added deleted", "initial added kept", "initial added created", "initial deleted deleted"}, got); diff != "" {
					t.Errorf("events of the watcher (-want +got):\n%s", diff)
				}
				checkKept(t, store, src.ResourceVersion())
			})
		})
	}
}

func TestARefusedChangeIsFoundInItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"), object("bad", "1"), object("c", "1"))
		store := &pickyDurable{durable: informertest.NewDurable()}
		var errs errorLog
		inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
		r := &recorder{}
		addWatcher(t, inf, r, informer.WatcherOptions{})
		stop := informertest.Run(t, inf)
		_, _ = src.Update(object("a", "2"))
		_, _ = src.Update(object("bad", "2"))
		sleepBubble(time.Minute)
		if err := r.Err(); err != nil {
			t.Error(err)
		}
		got := told(r)
		slices.Sort(got[:2])
		if diff := cmp.Diff([]string{"initial added a", "initial added c", "watch updated a"}, got); diff != "" {
			t.Errorf("events of the watcher (-want +got):\n%s", diff)
		}
		for _, err := range errs.Take() {
			var serr *informer.StoreError
			if !errors.As(err, &serr) || serr.Op != "apply" || serr.Key != "default/bad" || !serr.GaveUp {
				t.Errorf("reported: %v", err)
			}
		}
		if got := inf.Health().Refused; got != 2 {
			t.Errorf("Health counts %d refused changes", got)
		}
		late := &recorder{} // syncs only if the log reaches the position begun
		reg := addWatcher(t, inf, late, informer.WatcherOptions{})
		<-reg.Synced()
		stop()
		// The store lacks an object, so it must not keep a bookmark: the next start must list.
		checkKept(t, store.durable, "")
		store.durable = store.Reopen()
		store.takes = true
		n := len(src.Requests())
		inf = newInformer(t, src, options{Durable: store})
		informertest.Run(t, inf)
		synctest.Wait()
		checkStore(t, inf, src)
		if got, want := asked(src, n), "list, watch from "+src.ResourceVersion(); got != want {
			t.Errorf("the source was asked for: %s\nwant: %s", got, want)
		}
		checkKept(t, store.durable, src.ResourceVersion())
	})
}

// pickyDurable refuses the object "bad".
type pickyDurable struct {
	*durable
	takes bool
}

func (s *pickyDurable) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	for _, c := range changes {
		if c.Object.(configMap).Name == "bad" && !s.takes {
			return fmt.Errorf("does not like it: %w", informer.ErrPermanent)
		}
	}
	return s.durable.Apply(ctx, changes, bookmark)
}

// lagging is a store whose bookmark is older than some of its objects.
type lagging struct {
	*durable
	at string
}

func (s lagging) Resume(context.Context) (string, error) { return s.at, nil }

func TestAResumedWatchSkipsWhatIsNotNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		at := src.ResourceVersion()
		_, _ = src.Update(object("a", "2"))
		_, _ = src.Delete(keyOf("b"))
		_, _ = src.Create(object("b", "2"))
		store := informertest.NewDurable()
		oneRun(t, src, store, options{})
		_, _ = src.Update(object("a", "3"))
		_, r := watched(t, src, options{Durable: lagging{store.Reopen(), at}})
		synctest.Wait()
		checkView(t, r, src)
		got := told(r)
		slices.Sort(got[:2])
		if diff := cmp.Diff([]string{"initial added a", "initial added b", "watch updated a"}, got); diff != "" {
			t.Errorf("events of the watcher (-want +got):\n%s", diff)
		}
	})
}

func TestADurableNeedsRealFIFO(t *testing.T) {
	_, err := informer.NewFrom(informertest.NewSource[configMap](), options{Durable: informertest.NewDurable(), Queue: informer.QueueDeltaFIFO})
	if err == nil || !strings.Contains(err.Error(), "Options.Queue") {
		t.Errorf("New: %v", err)
	}
}

func TestAStoreThatCannotBeReadAtTheStartIsWaitedFor(t *testing.T) {
	for _, op := range []string{"resume", "tombstones", "scan"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(object("a", "1"))
				store := informertest.NewDurable()
				oneRun(t, src, store, options{})
				store = store.Reopen()
				store.Fail(func(o, _ string) error {
					if o == op {
						return fmt.Errorf("cannot %s: %w", op, informer.ErrPermanent)
					}
					return nil
				})
				n := len(src.Requests())
				var errs errorLog
				inf := newInformer(t, src, options{Durable: store, ErrorHandler: errs.Handle})
				start(t, inf)
				sleepBubble(time.Minute)
				if inf.HasSynced() || len(src.Requests()) > n {
					t.Error("went on without the store")
				}
				if err := inf.Health().StoreError; err == nil || !strings.Contains(err.Error(), "cannot "+op) {
					t.Errorf("Health.StoreError: %v", err)
				}
				store.Heal()
				if err := inf.WaitForSync(within(t, time.Minute)); err != nil {
					t.Fatal(err)
				}
				checkStore(t, inf, src)
				if got := errs.Take(); len(got) != 1 {
					t.Errorf("reported: %v", got)
				}
			})
		})
	}
}

func TestACrashInARelistLeavesNoBookmark(t *testing.T) {
	const n = 1500 // more than one batch
	for name, change := range map[string]func(src *source, name string){
		"whose list lacks the objects": func(src *source, name string) { _, _ = src.Delete(keyOf(name)) },
		"whose list has new versions":  func(src *source, name string) { src.Apply(object(name, "2")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource[configMap]()
				for i := range n {
					src.Apply(object(fmt.Sprintf("o%04d", i), "1"))
				}
				store := informertest.NewDurable()
				oneRun(t, src, store, options{})
				store = store.Reopen()
				for i := range n {
					change(src, fmt.Sprintf("o%04d", i))
				}
				src.Expire()
				applied := 0
				store.FailAfter(func(op, _ string) error {
					if op == "apply" {
						if applied++; applied == 2 { // the first one removes the bookmark
							store.Crash()
						}
					}
					return nil
				})
				inf := newInformer(t, src, options{Durable: store, ErrorHandler: func(context.Context, error) {}})
				stop := start(t, inf)
				sleepBubble(time.Minute)
				stop()
				store = store.Reopen()
				if got, err := store.Resume(t.Context()); got != "" || err != nil {
					t.Errorf("the bookmark is %q (%v)", got, err)
				}
				if tombs, _ := store.Tombstones(t.Context()); name == "whose list lacks the objects" && len(tombs) == 0 {
					t.Error("nothing was applied")
				}
				oneRun(t, src, store, options{})
			})
		})
	}
}

// endless is a store whose Apply blocks until the informer stops.
type endless struct{ *durable }

func (s endless) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	if len(changes) == 0 {
		return s.durable.Apply(ctx, changes, bookmark)
	}
	<-ctx.Done()
	return fmt.Errorf("interrupted: %w", ctx.Err())
}

func TestAnApplyThatAStopInterruptsIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[configMap]()
		inf := newInformer(t, src, options{Durable: endless{informertest.NewDurable()}})
		r := &recorder{}
		addWatcher(t, inf, r, informer.WatcherOptions{})
		stop := informertest.Run(t, inf)
		src.Apply(object("a", "1"))
		synctest.Wait()
		stop()
		if got := told(r); len(got) > 0 {
			t.Errorf("the watcher got %v", got)
		}
	})
}

// If an informer cannot use a part of a list or of a watch, the store keeps no bookmark, and the
// next start lists.
func TestWhatIsMissingLeavesNoBookmark(t *testing.T) {
	broken := func(obj configMap) (configMap, error) {
		if obj.Data["value"] == "bad" {
			return nil, errors.New("it is bad")
		}
		return obj, nil
	}
	for name, c := range map[string]struct {
		opts   options
		before func(src *source)
		while  func(src *source)
	}{
		"a transform fails":            {opts: options{Transform: broken}, while: func(src *source) { src.Apply(object("a", "bad")) }},
		"a transform fails for a list": {opts: options{Transform: broken}, before: func(src *source) { src.Apply(object("b", "bad")) }},
		"a list has an unusable object": {before: func(src *source) {
			src.SetFaults(informertest.Faults{ListItems: []runtime.Object{&corev1.ConfigMap{}}, RejectWatchList: true})
		}},
		"a watch has an object of another type": {while: func(src *source) {
			src.Inject(watch.Event{Type: watch.Modified, Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "1003"}}})
		}},
		"a list has no version": {before: func(src *source) {
			src.SetFaults(informertest.Faults{OmitListVersion: true, RejectWatchList: true})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := informertest.NewSource(object("a", "1"))
				if c.before != nil {
					c.before(src)
				}
				c.opts.Durable = informertest.NewDurable()
				var errs errorLog
				c.opts.ErrorHandler = errs.Handle
				stop := informertest.Run(t, newInformer(t, src, c.opts))
				if c.while != nil {
					synctest.Wait()
					checkKept(t, c.opts.Durable.(*durable), src.ResourceVersion())
					c.while(src)
				}
				synctest.Wait()
				src.Apply(object("c", "1"))
				synctest.Wait()
				stop()
				checkKept(t, c.opts.Durable.(*durable), "")
				if len(errs.Take()) == 0 {
					t.Error("nothing was reported")
				}
			})
		})
	}
}
