package valkey_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	runtimego "runtime"
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

	"github.com/customcacheinformer/informer"
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
	at      map[uint64]state // of the present epoch, at each version that the store got
	now     state
	version uint64
	last    uint64 // the version after which nothing happens; 0 as long as something does
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
	failures int // of calls
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

// reopen opens the store again, like the next process.
func (w *writer) reopen() {
	w.insist("open", func() (err error) {
		w.store, err = valkey.Open(w.t.Context(), w.client, sample.ConfigMap("", "").(runtime.Object), valkey.Options{
			Identity: w.identity, Log: w.log, ErrorHandler: func(err error) { w.t.Errorf("reported: %v", err) },
		})
		return err
	})
}

// apply makes the same call until it succeeds, as an informer does.
func (w *writer) apply(changes []informer.Change, bookmark string) {
	w.insist("apply", func() error { return w.store.Apply(w.t.Context(), changes, bookmark) })
}

// insist repeats a call. If it can never succeed, the test fails, and the goroutine ends.
func (w *writer) insist(op string, call func() error) {
	for {
		err := call()
		if err == nil {
			return
		}
		w.failures++
		if errors.Is(err, valkey.ErrLost) || errors.Is(err, valkey.ErrFenced) || w.t.Context().Err() != nil {
			w.t.Errorf("%s: %v", op, err)
			runtimego.Goexit()
		}
	}
}

func (w *writer) object(key, version string) informer.AnyObject {
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
		w.apply([]informer.Change{adding(w.object(key, v))}, "")
	}
	var gone []informer.Change
	for key, v := range before {
		if now[key] == "" {
			gone = append(gone, deleting(w.object(key, v)))
		}
	}
	w.apply(gone, "")
	w.reached(now, version)
	w.apply(nil, text(version))
}

// finish writes a last bookmark.
func (w *writer) finish() {
	w.past.mu.Lock()
	w.past.version++
	w.past.last = w.past.version
	w.past.mu.Unlock()
	w.reached(w.past.now, w.past.last)
	w.apply(nil, text(w.past.last))
}

// reached notes that the store gets a version. It is noted before, because a reader may be fast.
func (w *writer) reached(now state, version uint64) {
	w.past.mu.Lock()
	defer w.past.mu.Unlock()
	w.past.at[version] = now
}

// change makes one change of the source. The caller has locked the past.
func (w *writer) change() (change informer.Change) {
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
		w.past.version, w.past.at = w.past.version/2, map[uint64]state{}
		for key := range w.past.now {
			w.past.now[key] = text(w.past.version)
		}
		w.past.mu.Unlock()
		w.list()
	case n < 6:
		w.reopen()
	default:
		w.past.mu.Lock()
		var changes []informer.Change
		if n < 10 { // a bookmark
			w.past.version++
		} else {
			for range 1 + w.rng.IntN(6) {
				changes = append(changes, w.change())
			}
		}
		now, version := maps.Clone(w.past.now), w.past.version
		w.past.mu.Unlock()
		w.reached(now, version)
		w.apply(changes, text(version))
	}
}

func newSource(t *testing.T, c client.Client, identity store.Identity) *valkey.Source {
	t.Helper()
	source, err := valkey.NewSource(c, sample.ConfigMap("", "").(runtime.Object), identity)
	must(t, err)
	return source
}

func text(n uint64) string { return strconv.FormatUint(n, 10) }

// reader follows a store with a Source, and compares what it has with the past.
type reader struct {
	past   *past
	source *valkey.Source
	rng    *rand.Rand
	have   state
	errs   []error

	// arrived is closed when the reader has the last version.
	arrived chan struct{}
	ended   chan struct{} // closed when run has returned

	lists, states, events, expired int
}

// run lists and watches until ctx ends, as a reflector does.
func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := r.source.ListWithContext(ctx, metav1.ListOptions{})
		if apierrors.IsServiceUnavailable(err) {
			time.Sleep(time.Millisecond) // the server runs in real time, and does not say when it is ready
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

// watch watches for a while. It returns the version from which the next watch continues, and "" if the
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
		time.Sleep(time.Millisecond) // as above
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
	if n == r.past.last {
		select {
		case <-r.arrived:
		default:
			close(r.arrived)
		}
	}
	if !maps.Equal(want, r.have) {
		r.fail(ctx, fmt.Errorf("at version %s the reader has %v, want %v", version, r.have, want))
	}
}

func TestAReaderHasTheStateOfEachVersion(t *testing.T) {
	for name, trouble := range map[string]func(*server.Server, *server.Proxy){
		"nothing happens":         nil,
		"connections break":       func(_ *server.Server, p *server.Proxy) { p.Break() },
		"the server is killed":    func(s *server.Server, _ *server.Proxy) { s.Kill(); s.Restart() },
		"the server stops awhile": func(s *server.Server, _ *server.Proxy) { s.Pause(); time.Sleep(time.Second); s.Resume() }, // a real process, in real time
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var args []string
			if name == "the server is killed" {
				// With everysec it may lose the last seconds, as after a loss of power.
				args = []string{"--appendfsync", "always"}
			}
			followHistory(t, server.Start(t, args...), trouble)
		})
	}
}

// followHistory has readers follow a random history on a server. trouble is made again and again meanwhile.
func followHistory(t *testing.T, srv *server.Server, trouble func(*server.Server, *server.Proxy)) {
	n, number := cmp.Or(*seed, uint64(time.Now().UnixNano())), *steps
	switch {
	case number != 0:
	case testing.Short():
		number = 200
	default:
		number = 1000
	}
	t.Logf("-seed %d -steps %d", n, number)
	proxy := server.NewProxy(t, srv)
	rng := rand.New(rand.NewPCG(n, 0))
	ctx, cancel := context.WithCancel(t.Context())
	var running, writing sync.WaitGroup
	w, written := newWriter(t, srv.ClientAt(proxy.Addr()), rand.New(rand.NewPCG(n, 1)), 200), make(chan struct{})
	readers := make([]*reader, 4)
	for i := range readers {
		readers[i] = &reader{past: w.past, arrived: make(chan struct{}), ended: make(chan struct{}), source: newSource(t, srv.ClientAt(proxy.Addr()), w.identity), rng: rand.New(rand.NewPCG(n, uint64(i)+2))}
		running.Go(func() {
			defer close(readers[i].ended)
			readers[i].run(ctx)
		})
	}
	writing.Go(func() {
		defer close(written)
		for range number {
			w.step()
		}
		w.finish()
	})
	for made := 0; ; made++ {
		select {
		case <-written:
			t.Logf("%d times of trouble, %d calls of the writer have failed", made, w.failures)
		case <-time.After(time.Duration(rng.IntN(300)) * time.Millisecond):
			if trouble != nil {
				trouble(srv, proxy)
			}
			continue
		}
		break
	}
	for i, r := range readers {
		select {
		case <-r.arrived:
		case <-r.ended: // with an error
		}
		t.Logf("reader %d: %d lists, %d events, %d states compared, %d times expired", i, r.lists, r.events, r.states, r.expired)
	}
	cancel()
	running.Wait()
	for i, r := range readers {
		if err := errors.Join(r.errs...); err != nil {
			t.Errorf("reader %d: %v", i, err)
		}
		if r.states == 0 {
			t.Errorf("reader %d has compared nothing", i)
		}
	}
}
