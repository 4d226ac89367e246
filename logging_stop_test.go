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
	early  bool // begin is called before Run
	// begin makes the call. It may return a function that releases the call in addition to
	// hold. begin may be nil.
	begin func(t *testing.T, inf *ci, src *source, store *informertest.Store, hold <-chan struct{}) (release func())
}

// hangingWatcher returns a begin function that adds a watcher. The watcher's calls return only
// when hold is closed.
func hangingWatcher(opts informer.WatcherOptions) func(*testing.T, *ci, *source, *informertest.Store, <-chan struct{}) func() {
	return func(t *testing.T, inf *ci, _ *source, _ *informertest.Store, hold <-chan struct{}) func() {
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(context.Context, event) error { <-hold; return nil }), opts)
		return nil
	}
}

func hangingSource(list, watching bool) func(hold <-chan struct{}) cache.ListerWatcher {
	return func(hold <-chan struct{}) cache.ListerWatcher {
		wait := func(wait bool) {
			if wait {
				<-hold
			}
		}
		return &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				wait(list)
				return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				wait(watching)
				return watch.NewFake(), nil
			},
		}
	}
}

func hangingCalls() map[string]hanging {
	calls := map[string]hanging{
		"a watcher":          {name: "watcher w: default/a", begin: hangingWatcher(informer.WatcherOptions{Name: "w"})},
		"a watcher's worker": {name: "watcher w: default/a", begin: hangingWatcher(informer.WatcherOptions{Name: "w", Workers: 2})},
		"a LIST":             {name: "source: list", source: hangingSource(true, false), opts: options{WatchList: informer.WatchListOff}},
		"a WATCH":            {name: "source: watch", source: hangingSource(false, true), opts: options{WatchList: informer.WatchListOff}},
		"the listing of a watcher that joins": {name: "watcher late: store: list",
			begin: func(t *testing.T, inf *ci, _ *source, store *informertest.Store, _ <-chan struct{}) func() {
				release := store.Hang()
				addWatcher(t, inf, &recorder{}, informer.WatcherOptions{Name: "late"})
				return release
			}},
		"an ErrorHandler, of a watcher's error": {name: "watcher WatcherFunc-1: default/a",
			begin: func(t *testing.T, inf *ci, _ *source, _ *informertest.Store, _ <-chan struct{}) func() {
				addWatcher(t, inf, informer.WatcherFunc[configMap](func(context.Context, event) error { return errors.New("to be handled") }), informer.WatcherOptions{})
				return nil
			}},
	}
	for op, call := range storeCalls {
		calls["the store's "+op] = hanging{name: strings.TrimSpace("store: " + op + " " + call.key), early: op == "list",
			begin: func(_ *testing.T, _ *ci, src *source, store *informertest.Store, _ <-chan struct{}) func() {
				release := hangAt(store, op)
				call.provoke(src)
				return release
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
	src, store, hold := informertest.NewSource(object("a", "1")), informertest.NewStore(nil), make(chan struct{})
	var lw cache.ListerWatcher = src
	if call.source != nil {
		lw = call.source(hold)
	}
	call.opts.Queue, call.opts.Store = queue, store
	call.opts.ErrorHandler = func(context.Context, error) { <-hold }
	inf := newInformer(t, lw, call.opts)
	release := func() { close(hold) }
	begin := func() {
		if call.begin == nil {
			return
		}
		if more := call.begin(t, inf, src, store, hold); more != nil {
			release = func() { more(); close(hold) }
		}
	}
	if call.early {
		begin()
	}
	stop, lines := startLogged(t, inf)
	synctest.Wait()
	if !call.early {
		begin()
	}
	synctest.Wait()
	named := func() (calls []string) {
		for _, e := range lines() {
			if e.Message == "The informer cannot stop until calls return" {
				calls = append(calls, e.ParameterKVList[1].([]string)...)
			}
		}
		return calls
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	sleepBubble(10*time.Second - 1)
	if got := named(); got != nil {
		t.Errorf("within 10 s it names %q", got)
	}
	sleepBubble(1)
	for n, name := range named() {
		if n > 0 || strings.TrimSpace(name) != call.name {
			t.Errorf("it names %q, not %q", name, call.name)
		}
	}
	if len(named()) == 0 {
		t.Errorf("it does not name %q", call.name)
	}
	sleepBubble(hour)
	if again := named(); len(again) > 1 {
		t.Errorf("it names %q, not once", again)
	}
	select {
	case <-stopped:
		t.Error("Run did not wait")
	default:
	}
	release()
	<-stopped
}

func TestACallThatIsNotKnownIsGuessedWhenTheInformerStops(t *testing.T) {
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
		named := false
		for _, e := range lines() {
			named = named || strings.Contains(fmt.Sprint(e.ParameterKVList...), "ErrorHandler, Observer, Transform or an index function")
		}
		if !named {
			t.Errorf("logged %v", lines())
		}
	})
}
