package restart_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// Tests of first states that fail in the middle, while their objects are taken in as they arrive.

// halting is a source that fails once, at one point of a first state, and then at each request until
// the server is mended.
type halting struct {
	*source
	err error // of the page that fails

	mu     sync.Mutex // protects the rest
	at     int        // the page of a list, or the event of a stream, that fails; -1 for none
	next   int        // the page that comes next
	failed bool
}

// take reports whether request or event n fails now, or all do.
func (h *halting) take(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = h.failed || n == h.at
	return h.failed
}

// failAt makes the next first state fail at a point.
func (h *halting) failAt(at int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.failed = at, false
}

func (h *halting) page(first bool) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first {
		h.next = 0
	}
	h.next++
	return h.next - 1
}

func (h *halting) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if h.take(h.page(opts.Continue == "")) {
		return nil, h.err
	}
	return h.source.ListWithContext(ctx, opts)
}

func (h *halting) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if h.take(-2) {
		return nil, h.err
	}
	w, err := h.source.WatchWithContext(ctx, opts)
	if err != nil || opts.SendInitialEvents == nil {
		return w, err
	}
	n := 0
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if h.take(n) {
			w.Stop()
			return e, false
		}
		n++
		return e, true
	}), nil
}

// eachHalt calls test in a bubble for each kind of store, for pages and for a stream, and for each
// point at which a first state of seven objects can fail.
func eachHalt(t *testing.T, test func(t *testing.T, opts options, store *informertest.Durable, at int)) {
	t.Helper()
	for name, opts := range map[string]options{"Durable": {}, "DeltaFIFO": {Queue: informer.QueueDeltaFIFO}, "RealFIFO": {Queue: informer.QueueRealFIFO}} {
		for how, mode := range map[string]informer.WatchListMode{"pages": informer.WatchListOff, "stream": informer.WatchListOn} {
			points := 4 // pages
			if mode == informer.WatchListOn {
				points = 8 // the last one is the bookmark
			}
			for at := range points {
				inBubble(t, fmt.Sprintf("%s/%s/%d", name, how, at), func(t *testing.T) {
					opts := opts
					opts.Intake, opts.WatchList, opts.PageSize = informer.IntakeEarly, mode, 2
					opts.ErrorHandler = ignore
					var store *informertest.Durable
					if name == "Durable" {
						store = informertest.NewDurable()
						opts.Durable = store
					}
					test(t, opts, store, at)
				})
			}
		}
	}
}

func newHalting(err error) *halting {
	return &halting{source: informertest.NewSource(numbered(7)...), err: err, at: -1}
}

var errHalt = errors.New("no route to the server")

func TestAFirstListThatFailsAnywhereDeliversNothingWrong(t *testing.T) {
	eachHalt(t, func(t *testing.T, opts options, store *informertest.Durable, at int) {
		src := newHalting(errHalt)
		src.failAt(at)
		inf := newInformer(t, src, opts)
		r := &recorder{}
		reg := addWatcher(t, inf, r, informer.WatcherOptions{})
		start(t, inf)
		sleepBubble(time.Minute)
		select {
		case <-inf.Synced():
			t.Error("the informer has synced")
		case <-reg.Synced():
			t.Error("the watcher has synced")
		default:
		}
		checkBookmark(t, store, "")
		before := told(r)
		equal(t, "events before the failure", len(before), min(at*perPoint(opts), 7))
		for _, e := range before {
			equal(t, "delivered before the failure", kindOf(e), "initial added")
		}

		_, _ = src.Delete(keyOf("o000"))
		_, _ = src.Delete(keyOf("o006"))
		_, _ = src.Update(object("o001", "2"))
		_, _ = src.Create(object("o007", "1"))
		src.Compact() // so that only a list can show the changes
		src.failAt(-1)
		<-reg.Synced()
		sleepBubble(time.Minute)
		checkView(t, r, src.source)
		checkBookmark(t, store, src.ResourceVersion())
		checkToldOnce(t, r)
	})
}

// perPoint returns how many objects come between two points of failure.
func perPoint(opts options) int {
	if opts.WatchList == informer.WatchListOn {
		return 1
	}
	return int(opts.PageSize)
}

func TestARelistThatFailsAnywhereDeletesNothing(t *testing.T) {
	eachHalt(t, func(t *testing.T, opts options, store *informertest.Durable, at int) {
		src := newHalting(errHalt)
		inf, r := watched(t, src, opts)
		synctest.Wait()
		known := len(told(r))
		src.SetFaults(informertest.Faults{Mute: true})
		_, _ = src.Delete(keyOf("o003"))
		_, _ = src.Update(object("o005", "2"))
		_, _ = src.Create(object("o007", "1"))
		_, _ = src.Delete(keyOf("o000"))
		_, _ = src.Create(object("o000", "1")) // another object
		src.failAt(at)
		src.Expire()
		src.SetFaults(informertest.Faults{})
		sleepBubble(time.Minute)
		for _, e := range told(r)[known:] {
			if strings.Contains(e, "deleted") && e != "relist deleted o000" {
				t.Errorf("delivered before the list is complete: %s", e)
			}
		}
		if at > 0 {
			checkBookmark(t, store, "")
		}
		src.failAt(-1)
		must(t, inf.WaitForVersion(within(t, time.Hour), "", src.ResourceVersion()))
		sleepBubble(time.Minute)
		checkView(t, r, src.source)
		checkBookmark(t, store, src.ResourceVersion())
		checkToldOnce(t, r)
		equal(t, "delivered from the relist", sorted(told(r)[known:]),
			"[relist added o000 relist added o007 relist deleted o000 relist deleted o003 relist updated o005]")
	})
}

// checkBookmark compares the bookmark of a store, if there is one.
func checkBookmark(t *testing.T, store *informertest.Durable, want string) {
	t.Helper()
	if store == nil {
		return
	}
	if got, err := store.Resume(t.Context()); got != want || err != nil {
		t.Errorf("the bookmark is %q (%v), not %q", got, err, want)
	}
}

// checkToldOnce checks that each state and each end of an object was delivered once.
func checkToldOnce(t *testing.T, r *recorder) {
	t.Helper()
	seen := map[string]bool{}
	for _, e := range r.Events() {
		obj := e.Object()
		state := fmt.Sprint(e.Type, " ", obj.Name, " ", obj.UID, "@", obj.ResourceVersion)
		if e.Type == informer.EventDeleted {
			state = fmt.Sprint(e.Type, " ", obj.Name, " ", obj.UID)
		}
		if seen[state] {
			t.Errorf("delivered twice: %s", state)
		}
		seen[state] = true
	}
}

// client-go asks for all objects at once when a page has expired, and the second list would have
// the version of the first.
func TestAListWhosePageHasExpiredIsNotContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := newHalting(apierrors.NewResourceExpired("the page is gone")), informertest.NewDurable()
		src.failAt(2)
		inf, r, _ := begun(t, src, options{Durable: store, PageSize: 2, ErrorHandler: ignore})
		synctest.Wait()
		_, _ = src.Delete(keyOf("o000"))
		src.failAt(-1)
		<-inf.Synced()
		sleepBubble(time.Minute)
		checkView(t, r, src.source)
		checkBookmark(t, store, src.ResourceVersion())
		for _, request := range src.Requests() {
			if request.Verb == "list" && request.Options.Limit == 0 {
				t.Error("all objects were asked for at once")
			}
		}
	})
}

// Neither a slow network nor a slow store may keep a list from ever being complete, or the watch from
// beginning.
func TestAListIsCompleteAlthoughItsPagesAreGone(t *testing.T) {
	for name, tc := range map[string]struct{ request, get time.Duration }{
		"the network is slow": {request: 40 * time.Second},
		"the store is slow":   {get: 100 * time.Millisecond},
	} {
		inBubble(t, name, func(t *testing.T) {
			src := &forgetful{source: informertest.NewSource(numbered(5000)...), takes: tc.request}
			store := informertest.NewDurable()
			store.Fail(func(op, _ string) error {
				if op == "get" {
					time.Sleep(tc.get)
				}
				return nil
			})
			inf := newInformer(t, src, options{Durable: store, ErrorHandler: ignore})
			begun := time.Now()
			start(t, inf)
			<-inf.Synced()
			noError(t, src.WaitForWatches(within(t, time.Hour), 1))
			testkit.AtMost(t, "the time that it took", time.Since(begun), 2*time.Hour)
			checkStore(t, inf, src.source)
		})
	}
}

// forgetful is a server that keeps the state of a list for 5 minutes.
type forgetful struct {
	*source
	takes time.Duration // a request
	begun time.Time     // when the list began
}

func (f *forgetful) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	time.Sleep(f.takes)
	if opts.Continue == "" {
		f.begun = time.Now()
	} else if time.Since(f.begun) > 5*time.Minute {
		return nil, apierrors.NewResourceExpired("the page is gone")
	}
	return f.source.ListWithContext(ctx, opts)
}

// client-go asks for a state that is not older than its last complete one. After a list that was given
// up, watchers know newer states, and another API server may be behind them.
func TestAListAfterOneThatWasGivenUpIsNotOlder(t *testing.T) {
	for how, mode := range map[string]informer.WatchListMode{"pages": informer.WatchListOff, "stream": informer.WatchListOn} {
		inBubble(t, how, func(t *testing.T) {
			src := newHalting(errHalt)
			src.failAt(2)
			inf := newInformer(t, src, options{WatchList: mode, Intake: informer.IntakeEarly, ErrorHandler: ignore})
			start(t, inf)
			synctest.Wait()
			n := len(src.Requests())
			src.failAt(-1)
			<-inf.Synced()
			for _, request := range src.Requests()[n:] {
				if v := request.Options.ResourceVersion; request.Verb == "list" && v != "" {
					t.Errorf("asked for a state as of %q", v)
				}
			}
		})
	}
}

// While a list comes in, a Transform that hangs or a store that fails must not keep Stop from
// its work: Run waits for the call that is under way, and for nothing else.
func TestStopWhileAListComesIn(t *testing.T) {
	for _, mode := range []informer.WatchListMode{informer.WatchListOff, informer.WatchListOn} {
		slow := func() error { time.Sleep(time.Second); return nil }
		for name, with := range map[string]func() options{
			"the store fails":   func() options { return options{Durable: failing(func() error { return errDown })} },
			"the store is slow": func() options { return options{Durable: failing(slow)} },
			"Transform is slow": func() options {
				return options{Transform: func(obj configMap) (configMap, error) { return obj, slow() }}
			},
		} {
			inBubble(t, fmt.Sprint(mode, "/", name), func(t *testing.T) {
				opts := with()
				opts.WatchList, opts.ErrorHandler = mode, ignore
				inf := newInformer(t, informertest.NewSource(numbered(5000)...), opts)
				stop := start(t, inf)
				sleepBubble(10 * time.Second)
				testkit.AtMost(t, "the time that the stop takes", took(stop), 2*time.Second)
			})
		}
	}
}

// failing returns a Durable each of whose operations calls fail first.
func failing(fail func() error) *informertest.Durable {
	s := informertest.NewDurable()
	s.Fail(func(string, string) error { return fail() })
	return s
}

// With several namespaces, each takes in its own list.
func TestAListOfOneNamespaceThatFailsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[configMap]()
		for _, namespace := range []string{"one", "two"} {
			for i := range 5 {
				obj := object(fmt.Sprintf("o%03d", i), "1")
				obj.Namespace = namespace
				src.Apply(obj)
			}
		}
		src.FailIn("one", "list", errHalt, -1)
		store := informertest.NewDurable()
		inf, err := informer.NewInNamespaces(src.Namespace, []string{"one", "two"}, options{Durable: store, PageSize: 2, ErrorHandler: ignore})
		must(t, err)
		start(t, inf)
		sleepBubble(time.Minute)
		equal(t, "objects of two", testkit.Count(inf.List("two", nil)), 5)
		checkBookmark(t, store, `{"one":"","two":"`+src.ResourceVersion()+`"}`)
		src.Heal()
		<-inf.Synced()
		synctest.Wait()
		checkStore(t, inf, src)
	})
}
