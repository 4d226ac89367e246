package parity_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/share"
)

// The tests of this package are one table of the behaviour of cache.SharedIndexInformer. Each
// case runs with client-go's informer and with ours, and usually expects the same of both.
// Where ours differs on purpose, the case checks which one it has, and a comment gives the reason.

// newShared makes an informer. It has the signature of cache.NewSharedIndexInformer.
type newShared func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer

var sharedInformers = map[string]newShared{
	clientGo:              cache.NewSharedIndexInformer,
	"ours":                informer.ClientGo{}.NewSharedIndexInformer,
	"ours, other options": informer.ClientGo{Options: otherOptions}.NewSharedIndexInformer,
	"ours, early intake":  newEarly,
	"ours, shared parts":  informer.ClientGo{Share: share.New()}.NewSharedIndexInformer,
	madeWithNew:           newView,
}

const (
	clientGo    = "client-go"
	madeWithNew = "ours, made with New"
)

// otherOptions returns options with the queue that is not the default, and a store without
// indexes.
func otherOptions(runtime.Object) (informer.Options[informer.AnyObject], error) {
	store := struct{ cache.Store }{cache.NewStore(cache.MetaNamespaceKeyFunc)}
	return informer.Options[informer.AnyObject]{Queue: informer.QueueDeltaFIFO, Store: store}, nil
}

// newEarly returns an informer that takes in lists as they arrive, because a transform is set.
func newEarly(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	inf := informer.ClientGo{}.NewSharedIndexInformer(lw, example, resync, indexers)
	if err := inf.SetTransform(func(obj any) (any, error) { return obj, nil }); err != nil {
		panic(err)
	}
	return inf
}

// newView returns the client-go view of a CustomCacheInformer. This is possible only for
// config maps and without a resync period. In other cases newView calls
// ClientGo.
func newView(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	if _, ok := example.(configMap); !ok || resync != 0 {
		return informer.ClientGo{}.NewSharedIndexInformer(lw, example, resync, indexers)
	}
	inf, err := informer.NewFrom(lw, options{})
	if err != nil {
		panic(err)
	}
	indexers = maps.Clone(indexers)
	delete(indexers, cache.NamespaceIndex) // the informer has this index already
	if err := inf.SharedIndexInformer().AddIndexers(indexers); err != nil {
		panic(err)
	}
	return inf.SharedIndexInformer()
}

// shared is one of the implementations, for a case to test.
type shared struct {
	name string
	make newShared
}

// ours reports whether s is one of our informers, not client-go's.
func (s shared) ours() bool { return s.name != clientGo }

// new returns an informer of config maps. The Indexers are not nil, because client-go's
// informer panics when indexers are added to a nil map.
func (s shared) new(lw cache.ListerWatcher, resync time.Duration) cache.SharedIndexInformer {
	return s.make(lw, &corev1.ConfigMap{}, resync, cache.Indexers{})
}

// over is new without resyncs, and also returns src.
func (s shared) over(src *source) (*source, cache.SharedIndexInformer) { return src, s.new(src, 0) }

// sharedCases maps the name of each case, a sentence, to its test.
type sharedCases map[string]func(t *testing.T, s shared)

// inBubbles runs each case with each implementation, each time in a bubble of its own.
func (cases sharedCases) inBubbles(t *testing.T) {
	t.Helper()
	cases.run(t, synctest.Test)
}

// inRealTime runs each case with each implementation outside of a bubble.
func (cases sharedCases) inRealTime(t *testing.T) {
	t.Helper()
	cases.run(t, func(t *testing.T, test func(*testing.T)) { test(t) })
}

func (cases sharedCases) run(t *testing.T, how func(*testing.T, func(*testing.T))) {
	t.Helper()
	for sentence, test := range cases {
		t.Run(sentence, func(t *testing.T) {
			for name, construct := range sharedInformers {
				t.Run(name, func(t *testing.T) {
					how(t, func(t *testing.T) { test(t, shared{name, construct}) })
				})
			}
		})
	}
}

// runShared runs inf, and waits until all goroutines of the bubble are blocked. It returns a
// function that stops inf and waits for its end. The end of the test calls this function too.
func runShared(t *testing.T, inf cache.SharedIndexInformer) (stop func()) {
	t.Helper()
	stop = testkit.StartShared(t, inf)
	synctest.Wait()
	return stop
}

// follow runs an informer of src with one handler, which was added before the start. It returns
// src too.
func follow[S cache.ListerWatcher](t *testing.T, s shared, src S) (S, cache.SharedIndexInformer, *heard) {
	t.Helper()
	inf := s.new(src, 0)
	h := listen(t, inf)
	runShared(t, inf)
	return src, inf, h
}

// settled is like follow, and drops the handler's first events.
func settled(t *testing.T, s shared, src *source) (*source, cache.SharedIndexInformer, *heard) {
	t.Helper()
	_, inf, h := follow(t, s, src)
	h.take()
	return src, inf, h
}

type sharedRegistration = cache.ResourceEventHandlerRegistration

// handle adds h with the informer's resync period.
func handle(t *testing.T, inf cache.SharedInformer, h cache.ResourceEventHandler) sharedRegistration {
	t.Helper()
	reg, err := inf.AddEventHandler(h)
	must(t, err)
	return reg
}

// listen adds a new handler with the informer's resync period.
func listen(t *testing.T, inf cache.SharedInformer) *heard {
	t.Helper()
	return listenEvery(t, inf, byDefault)
}

const byDefault = -1 // the informer's own resync period

// listenEvery adds a new handler with the given resync period.
func listenEvery(t *testing.T, inf cache.SharedInformer, resync time.Duration) *heard {
	t.Helper()
	var opts cache.HandlerOptions
	if resync != byDefault {
		opts.ResyncPeriod = &resync
	}
	var h heard
	var err error
	h.reg, err = inf.AddEventHandlerWithOptions(&h, opts)
	must(t, err)
	return &h
}

// heard is a handler that records its calls. Its zero value is ready.
type heard struct {
	reg sharedRegistration // if it was added by listen

	// hook, if not nil, is called for every event, with no lock held. It must be set before
	// the handler is added.
	hook func(event string)

	mu     sync.Mutex
	events []string // since the last take
	news   []any    // the object of each event
	olds   []any    // the old object of each update
}

func (h *heard) OnAdd(obj any, isInInitialList bool) {
	event := "add " + stateOf(obj)
	if isInInitialList {
		event += " initial"
	}
	h.note(event, nil, obj)
}

func (h *heard) OnUpdate(oldObj, newObj any) {
	event := fmt.Sprintf("update %s->%s", stateOf(oldObj), stateOf(newObj))
	if oldObj == newObj {
		event = "resync " + stateOf(newObj)
	}
	h.note(event, oldObj, newObj)
}

func (h *heard) OnDelete(obj any) {
	tomb, unknown := obj.(cache.DeletedFinalStateUnknown)
	if !unknown {
		h.note("delete "+stateOf(obj), nil, obj)
		return
	}
	event := "tombstone " + stateOf(tomb.Obj)
	if key, err := cache.MetaNamespaceKeyFunc(tomb.Obj); err != nil || key != tomb.Key {
		event += fmt.Sprintf(" with the key %q", tomb.Key)
	}
	h.note(event, nil, tomb.Obj)
}

func (h *heard) note(event string, oldObj, newObj any) {
	h.mu.Lock()
	h.events = append(h.events, event)
	h.olds = append(h.olds, oldObj)
	h.news = append(h.news, newObj)
	h.mu.Unlock()
	if h.hook != nil {
		h.hook(event)
	}
}

// take returns the events since the last call of take.
func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events, h.olds, h.news = nil, nil, nil
	return events
}

// last returns the objects of the last event.
func (h *heard) last(t *testing.T) (oldObj, newObj any) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.events) == 0 {
		t.Fatal("no event")
	}
	return h.olds[len(h.olds)-1], h.news[len(h.news)-1]
}

// expect waits until all goroutines of the bubble are blocked. Then it fails the test unless
// the events since the last call are the ones in want. It compares the order of the events of
// each object only, because an informer promises no other order.
func (h *heard) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(byObject(want), byObject(h.take())); diff != "" {
		t.Errorf("the handler got (-want +got):\n%s", diff)
	}
}

// resyncs returns the number of resyncs since the last call. It fails the test if there was
// any other event.
func (h *heard) resyncs(t *testing.T) int {
	t.Helper()
	synctest.Wait()
	events := h.take()
	for _, event := range events {
		if !strings.HasPrefix(event, "resync ") {
			t.Errorf("the handler got %q", event)
		}
	}
	return len(events)
}

func byObject(events []string) []string {
	name := func(event string) string {
		_, state, _ := strings.Cut(event, " ")
		name, _, _ := strings.Cut(state, "@")
		return name
	}
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b string) int { return strings.Compare(name(a), name(b)) })
	return events
}

// stateOf returns the name of an object and its resourceVersion, as [short] returns it.
func stateOf(obj any) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Sprintf("%T", obj)
	}
	return m.GetName() + "@" + short(m.GetResourceVersion())
}

// short returns a resourceVersion of a source, counted from its first write, which is 1.
func short(version string) string {
	n, err := strconv.Atoi(version)
	if err != nil {
		return version
	}
	return strconv.Itoa(n - 1000)
}

// gate has a hook that blocks a handler until the gate is open, that is, the channel closed.
type gate chan struct{}

func (g gate) wait(string) { <-g }

// change changes the objects of src in turn: "a=2" writes an object a with the value 2, and "-a"
// deletes it.
func change(t *testing.T, src *source, changes ...string) {
	t.Helper()
	for _, change := range changes {
		if name, value, found := strings.Cut(change, "="); found {
			src.Apply(object(name, value))
		} else {
			remove(t, src, strings.TrimPrefix(change, "-"))
		}
	}
}

// missing is like change, but the readers of src miss the changes. They notice them by a list.
func missing(t *testing.T, src *source, changes ...string) {
	t.Helper()
	unseen(src, func() { change(t, src, changes...) })
}

func unseen[T informer.Object](src *informertest.Source[T], change func()) {
	src.SetFaults(informertest.Faults{Mute: true})
	change()
	src.Expire()
	src.SetFaults(informertest.Faults{})
	sleepBubble(time.Minute) // for the back-off
}

// remove deletes an object of src.
func remove[T informer.Object](t *testing.T, src *informertest.Source[T], name string) {
	t.Helper()
	_, err := src.Delete(keyOf(name))
	must(t, err)
}

// checkShared fails the test unless the cache of inf holds exactly these states.
func checkShared(t *testing.T, inf cache.SharedIndexInformer, want ...string) {
	t.Helper()
	checkStates(t, inf.GetStore().List(), want)
}

// checkStates fails the test unless objs have the states in want, in any order.
func checkStates(t *testing.T, objs []any, want []string) {
	t.Helper()
	var got []string
	for _, obj := range objs {
		got = append(got, stateOf(obj))
	}
	equal(t, "objects", sorted(got), sorted(want))
}

// cached returns the object of that name in the cache of inf.
func cached(t *testing.T, inf cache.SharedIndexInformer, name string) any {
	t.Helper()
	obj, exists, err := inf.GetStore().GetByKey("default/" + name)
	if err != nil || !exists {
		t.Fatalf("the store has no %q (%v)", name, err)
	}
	return obj
}

// valueOf returns the value of a config map in the cache of inf.
func valueOf(t *testing.T, inf cache.SharedIndexInformer, name string) string {
	t.Helper()
	return cached(t, inf, name).(configMap).Data["value"]
}

// checkSynced fails the test unless all methods that report the sync return want.
func checkSynced(t *testing.T, want bool, all ...interface {
	HasSynced() bool
	HasSyncedChecker() cache.DoneChecker
}) {
	t.Helper()
	for _, of := range all {
		checker := of.HasSyncedChecker()
		if of.HasSynced() != want || cache.IsDone(checker) != want {
			t.Errorf("%T (%s): synced: %t, done: %t, want %t", of, checker.Name(), of.HasSynced(), cache.IsDone(checker), want)
		}
	}
}

// wantError fails the test if err is nil and want is true, or the other way round.
func wantError(t *testing.T, want bool, what string, err error) {
	t.Helper()
	if (err != nil) != want {
		t.Errorf("%s: error is %v", what, err)
	}
}

func one() *source { return informertest.NewSource(object("a", "1")) }

func two() *source { return informertest.NewSource(object("a", "1"), object("b", "1")) }

// With lists a source refuses to stream the first state, so that it must be listed.
var lists = informertest.Faults{RejectWatchList: true}

// held is like two, but its list does not arrive before release is called.
func held() (src *source, release func()) {
	src = two()
	src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
	return src, func() { src.SetFaults(lists) }
}

// eachWay returns a case that runs test with a source like two that streams the first state,
// and with one that lists it.
func eachWay(test func(t *testing.T, s shared, src *source)) func(t *testing.T, s shared) {
	return func(t *testing.T, s shared) {
		test(t, s, two())
		src := two()
		src.SetFaults(lists)
		test(t, s, src)
	}
}
