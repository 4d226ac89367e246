package valkey_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	client "github.com/valkey-io/valkey-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/sample"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/valkey"
	"github.com/customcacheinformer/informer/store/valkey/internal/server"
)

var (
	seed  = flag.Uint64("seed", 0, "of the random histories; by default it is the time")
	steps = flag.Int("steps", 0, "number of steps of a random history")
)

// state has the versions of the objects of one moment, by key.
type state map[string]string

// past is the history of a source, as a writer has told it to a store.
type past struct {
	mu      sync.Mutex
	at      map[uint64]state // of the present epoch, at each version that the store was told
	now     state
	version uint64
	epochs  int
}

// writer writes a random history into a store, as an informer does.
type writer struct {
	t        *testing.T
	rng      *rand.Rand
	client   client.Client
	identity store.Identity
	log      int
	store    *valkey.Store
	past     *past
}

func newWriter(t *testing.T, c client.Client, rng *rand.Rand, log int) *writer {
	w := &writer{
		t: t, rng: rng, client: c, identity: newIdentity(), log: log,
		past: &past{at: map[uint64]state{}, now: state{}, version: 100},
	}
	w.reopen()
	w.list()
	return w
}

func (w *writer) reopen() {
	w.store = open(w.t, w.client, sample.ConfigMap("", ""), valkey.Options{Identity: w.identity, Log: w.log})
}

func (w *writer) apply(changes []cache.Transaction, bookmark string) {
	w.t.Helper()
	if err := w.store.Apply(w.t.Context(), changes, bookmark); err != nil {
		w.t.Fatal(err)
	}
}

// object returns the object of a key at a version.
func (w *writer) object(key, version string) any {
	obj := at(sample.ConfigMap("default", key), version)
	obj.SetUID(types.UID("uid-" + key))
	return obj
}

// list writes the present state as a list does, in several steps, with changes that the writer has not seen
// before.
func (w *writer) list() {
	w.past.mu.Lock()
	before := maps.Clone(w.past.now)
	for range w.rng.IntN(5) {
		w.change()
	}
	now, version := maps.Clone(w.past.now), w.past.version
	w.past.mu.Unlock()
	for key, v := range now {
		w.apply([]cache.Transaction{adding(w.object(key, v))}, "")
	}
	var gone []cache.Transaction
	for key, v := range before {
		if now[key] == "" {
			gone = append(gone, deleting(w.object(key, v)))
		}
	}
	w.apply(gone, "")
	w.reached(now, version)
	w.apply(nil, text(version))
}

// reached notes that the store is told a version. It is noted before, because a reader may be fast.
func (w *writer) reached(now state, version uint64) {
	w.past.mu.Lock()
	defer w.past.mu.Unlock()
	w.past.at[version] = now
}

// change makes one change of the source. The caller has locked the past.
func (w *writer) change() (change cache.Transaction) {
	w.past.version += 1 + uint64(w.rng.IntN(3))
	key, v := "o"+strconv.Itoa(w.rng.IntN(20)), text(w.past.version)
	if old := w.past.now[key]; old != "" && w.rng.IntN(3) == 0 {
		delete(w.past.now, key)
		return deleting(w.object(key, old))
	}
	w.past.now[key] = v
	return adding(w.object(key, v))
}

// step does something.
func (w *writer) step() {
	switch n := w.rng.IntN(100); {
	case n < 2:
		w.list()
	case n < 3: // the source is restored from a backup
		w.past.mu.Lock()
		w.past.version, w.past.at, w.past.epochs = w.past.version/2, map[uint64]state{}, w.past.epochs+1
		for key := range w.past.now {
			w.past.now[key] = text(w.past.version)
		}
		w.past.mu.Unlock()
		w.list()
	case n < 6:
		w.reopen()
	case n < 10: // a bookmark
		w.past.mu.Lock()
		w.past.version++
		now, version := maps.Clone(w.past.now), w.past.version
		w.past.mu.Unlock()
		w.reached(now, version)
		w.apply(nil, text(version))
	default:
		w.past.mu.Lock()
		var changes []cache.Transaction
		for range 1 + w.rng.IntN(6) {
			changes = append(changes, w.change())
		}
		now, version := maps.Clone(w.past.now), w.past.version
		w.past.mu.Unlock()
		w.reached(now, version)
		w.apply(changes, text(version))
	}
}

func text(n uint64) string { return strconv.FormatUint(n, 10) }

// reader follows a store with a Source, and compares what it has with the past.
type reader struct {
	past   *past
	source *valkey.Source
	rng    *rand.Rand
	have   state
	errs   []error

	lists, states, events, expired int
}

// run lists and watches until ctx ends, as a reflector does.
func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := r.source.ListWithContext(ctx, metav1.ListOptions{})
		if apierrors.IsServiceUnavailable(err) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			r.fail(ctx, err)
			return
		}
		l := list.(*metav1.List)
		r.lists++
		r.have = state{}
		for _, item := range l.Items {
			r.have[item.Object.(metav1.Object).GetName()] = item.Object.(metav1.Object).GetResourceVersion()
		}
		r.check(ctx, l.ResourceVersion)
		for version := l.ResourceVersion; version != ""; {
			version = r.watch(ctx, version)
		}
	}
}

func (r *reader) fail(ctx context.Context, err error) {
	if ctx.Err() == nil {
		r.errs = append(r.errs, err)
	}
}

// watch watches for a while. It returns the version from which the next watch goes on, and "" if the
// reader must list.
func (r *reader) watch(ctx context.Context, version string) string {
	w, err := r.source.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	switch {
	case ctx.Err() != nil:
		return ""
	case apierrors.IsResourceExpired(err):
		r.expired++
		return ""
	case apierrors.IsTooManyRequests(err):
		time.Sleep(time.Millisecond)
		return version
	case err != nil:
		r.fail(ctx, err)
		return ""
	}
	defer w.Stop()
	for left := r.rng.IntN(200); left > 0; left-- {
		var e watch.Event
		var ok bool
		select {
		case e, ok = <-w.ResultChan():
		case <-ctx.Done():
		}
		if !ok {
			return version
		}
		if e.Type == watch.Error {
			if err := apierrors.FromObject(e.Object); !apierrors.IsResourceExpired(err) {
				r.fail(ctx, err)
			}
			r.expired++
			return ""
		}
		obj := e.Object.(metav1.Object)
		version = obj.GetResourceVersion()
		r.take(ctx, e.Type, obj)
	}
	return version
}

func (r *reader) take(ctx context.Context, kind watch.EventType, obj metav1.Object) {
	r.events++
	name, version := obj.GetName(), obj.GetResourceVersion()
	switch before, known := r.have[name]; kind {
	case watch.Bookmark:
		r.check(ctx, version)
	case watch.Deleted:
		delete(r.have, name)
	default:
		if before != "" && !newer(version, before) {
			r.fail(ctx, fmt.Errorf("%s goes from version %s to %s", name, before, version))
		}
		if known != (kind == watch.Modified) {
			r.fail(ctx, fmt.Errorf("%s of %s, which the reader knows: %t", kind, name, known))
		}
		r.have[name] = version
	}
}

func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// check compares what the reader has with what the source had at that version.
func (r *reader) check(ctx context.Context, version string) {
	n, err := strconv.ParseUint(version, 10, 64)
	r.past.mu.Lock()
	defer r.past.mu.Unlock()
	want, known := r.past.at[n]
	if err != nil || !known {
		return // of an epoch that is over
	}
	r.states++
	if !maps.Equal(want, r.have) {
		r.fail(ctx, fmt.Errorf("at version %s the reader has %v, want %v", version, r.have, want))
	}
}

func TestAReaderHasTheStateOfEachVersion(t *testing.T) {
	srv := server.Start(t)
	n, number := *seed, *steps
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	if number == 0 {
		number = 3000
	}
	if testing.Short() && *steps == 0 {
		number = 600
	}
	t.Logf("-seed %d -steps %d", n, number)
	w := newWriter(t, srv.Client(), rand.New(rand.NewPCG(n, 1)), 200)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	readers := make([]*reader, 4)
	for i := range readers {
		source, err := valkey.NewSource(srv.Client(), sample.ConfigMap("", "").(runtime.Object), w.identity)
		if err != nil {
			t.Fatal(err)
		}
		readers[i] = &reader{past: w.past, source: source, rng: rand.New(rand.NewPCG(n, uint64(i)+2))}
		running.Go(func() { readers[i].run(ctx) })
	}
	for range number {
		w.step()
	}
	w.list()
	time.Sleep(100 * time.Millisecond)
	cancel()
	running.Wait()
	for i, r := range readers {
		if err := errors.Join(r.errs...); err != nil {
			t.Errorf("reader %d: %v", i, err)
		}
		if r.states == 0 {
			t.Errorf("reader %d has compared nothing", i)
		}
		t.Logf("reader %d: %d lists, %d events, %d states compared, %d times expired", i, r.lists, r.events, r.states, r.expired)
	}
}
