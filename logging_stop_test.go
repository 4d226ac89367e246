package informer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// The calls that are logged when they hold up the stop of an informer.

// storeCalls holds the operations of a store. provoke makes an informer that knows the object
// "a" call the operation; key is the key of that call.
var storeCalls = map[string]struct {
	key     string
	provoke func(*source)
}{
	"list":     {"", func(*source) {}}, // called at the start
	"get":      {"default/a", func(src *source) { src.Apply(object("a", "2")) }},
	"update":   {"default/a", func(src *source) { src.Apply(object("a", "2")) }},
	"add":      {"default/b", func(src *source) { src.Apply(object("b", "1")) }},
	"delete":   {"default/a", func(src *source) { _, _ = src.Delete(keyOf("a")) }},
	"bookmark": {"", (*source).Bookmark},
}

// hangAt makes the operation op hang. For "list", "get" and "bookmark" it makes all operations
// hang.
func hangAt(store *informertest.Store, op string) (release func()) {
	if op == "list" || op == "get" || op == "bookmark" {
		return store.Hang()
	}
	hold := make(chan struct{})
	store.Fail(func(asked, _ string) error {
		if asked == op {
			<-hold
		}
		return nil
	})
	return func() { store.Fail(nil); close(hold) }
}

// hanging is a call of user code that does not return. name is the informer's name for it.
type hanging struct {
	name   string
	source func(hold <-chan struct{}) cache.ListerWatcher // nil stands for an informertest.Source
	opts   options
	early  bool            // begin is called before Run
	begin  func(*stopping) // makes the call; may be nil
}

// stopping is an informer that stops while a call hangs.
type stopping struct {
	*ci
	t       *testing.T
	src     *source
	store   *informertest.Store
	hold    chan struct{} // the call waits until this is closed
	release func()        // ends the call if it is one of the store
}

// hangingWatcher returns a begin function that adds a watcher.
func hangingWatcher(opts informer.WatcherOptions) func(*stopping) {
	return func(s *stopping) {
		addWatcher(s.t, s.ci, informer.WatcherFunc[configMap](func(context.Context, event) error { <-s.hold; return nil }), opts)
	}
}

func hangingSource(verb string) func(hold <-chan struct{}) cache.ListerWatcher {
	return func(hold <-chan struct{}) cache.ListerWatcher {
		called := func(name string) {
			if name == verb {
				<-hold
			}
		}
		return &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				called("list")
				return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				called("watch")
				return watch.NewFake(), nil
			},
		}
	}
}

func hangingCalls() map[string]hanging {
	calls := map[string]hanging{
		"a watcher":          {name: "watcher w: default/a", begin: hangingWatcher(informer.WatcherOptions{Name: "w"})},
		"a watcher's worker": {name: "watcher w: default/a", begin: hangingWatcher(informer.WatcherOptions{Name: "w", Workers: 2})},
		"a LIST":             {name: "source: list", source: hangingSource("list"), opts: options{WatchList: informer.WatchListOff}},
		"a WATCH":            {name: "source: watch", source: hangingSource("watch"), opts: options{WatchList: informer.WatchListOff}},
		"the listing of a watcher that joins": {name: "watcher late: store: list", begin: func(s *stopping) {
			s.release = s.store.Hang()
			addWatcher(s.t, s.ci, &recorder{}, informer.WatcherOptions{Name: "late"})
		}},
		"an ErrorHandler, of a watcher's error": {name: "watcher WatcherFunc-1: default/a", begin: func(s *stopping) {
			addWatcher(s.t, s.ci, informer.WatcherFunc[configMap](func(context.Context, event) error { return errors.New("to be handled") }), informer.WatcherOptions{})
		}},
	}
	for op, call := range storeCalls {
		calls["the store's "+op] = hanging{name: strings.TrimSpace("store: " + op + " " + call.key), early: op == "list", begin: func(s *stopping) {
			s.release = hangAt(s.store, op)
			call.provoke(s.src)
		}}
	}
	return calls
}

func TestACallThatDoesNotReturnIsNamedWhenTheInformerStops(t *testing.T) {
	for what, call := range hangingCalls() {
		t.Run(what, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) { stopDuring(t, queue, call) })
		})
	}
}

func stopDuring(t *testing.T, queue informer.QueueKind, call hanging) {
	s := &stopping{t: t, src: informertest.NewSource(object("a", "1")), store: informertest.NewStore(nil), hold: make(chan struct{}), release: func() {}}
	var lw cache.ListerWatcher = s.src
	if call.source != nil {
		lw = call.source(s.hold)
	}
	call.opts.Queue, call.opts.Store = queue, s.store
	call.opts.ErrorHandler = func(context.Context, error) { <-s.hold }
	s.ci = newInformer(t, lw, call.opts)
	if call.begin != nil && call.early {
		call.begin(s)
	}
	stop, lines := startLogged(t, s.ci)
	synctest.Wait()
	if call.begin != nil && !call.early {
		call.begin(s)
	}
	synctest.Wait()
	named := func() (calls []string) {
		for _, e := range lines() {
			if e.Message == "The informer cannot stop until calls return" {
				for _, name := range e.ParameterKVList[1].([]string) {
					calls = append(calls, strings.TrimSpace(name))
				}
			}
		}
		return calls
	}
	stopped := asking(func() error { stop(); return nil })
	sleepBubble(10*time.Second - 1)
	equal(t, "calls within 10 s", named(), nil)
	sleepBubble(1)
	equal(t, "calls after 10 s", named(), []string{call.name})
	sleepBubble(hour)
	equal(t, "calls after an hour", named(), []string{call.name})
	pending(t, "Run", stopped)
	s.release()
	close(s.hold)
	noError(t, <-stopped)
}

func TestAnUnknownCallIsGuessedWhenTheInformerStops(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		hold := make(chan struct{})
		inf := must(informer.NewFrom(informertest.NewSource(object("a", "1")), options{Queue: queue, Transform: func(obj configMap) (configMap, error) {
			<-hold
			return obj, nil
		}}))
		stop, lines := startLogged(t, inf)
		synctest.Wait()
		time.AfterFunc(time.Minute, func() { close(hold) })
		stop()
		if got := fmt.Sprint(lines()); !strings.Contains(got, "ErrorHandler, Observer, Transform or an index function") {
			t.Errorf("logged %s", got)
		}
	})
}
