package parity_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestSharedHandlersUnderLoad(t *testing.T) {
	sharedCases{
		"lose nothing while others come and go": func(t *testing.T, s shared) {
			checkJoins(t, s, func() {}, func(*source, int) {})
		},
		"lose nothing when added while it starts": func(t *testing.T, s shared) {
			for range 20 {
				src, inf := s.over(informertest.NewSource(object("0-0", "first"), object("0-1", "first")))
				handlers := make([]witness, 5)
				var adders sync.WaitGroup
				for i := range handlers {
					adders.Go(func() {
						handle(t, inf, &handlers[i])
						inf.HasSynced()
						inf.IsStopped()
						inf.LastSyncResourceVersion()
					})
				}
				testkit.StartShared(t, inf)
				adders.Wait()
				change(t, src, "0-0=last")
				for i := range handlers {
					handlers[i].await(src)
					handlers[i].close(t)
				}
			}
		},
		"may add and remove handlers in each call": func(t *testing.T, s shared) {
			src, inf := s.over(informertest.NewSource(object("0-0", "first")))
			joined := make(chan sharedRegistration, 10)
			var f witness
			others := make([]witness, 100)
			next := 0
			var stopping atomic.Bool // f's last call may still be under way then
			f.also = func() {
				if len(joined) == cap(joined) {
					wantError(t, false, "remove", inf.RemoveEventHandler(<-joined))
				} else if next < len(others) {
					reg, err := inf.AddEventHandler(&others[next])
					if err == nil {
						joined <- reg
						next++
					} else if !stopping.Load() {
						t.Error(err)
					}
				}
			}
			handle(t, inf, &f)
			stop := testkit.StartShared(t, inf)
			churn(src, 100, func(int) {})
			f.await(src)
			stopping.Store(true)
			stop()
			f.close(t)
			for i := range others {
				others[i].close(t)
			}
		},
		"are not called after the informer stopped": func(t *testing.T, s shared) {
			src, inf := s.over(informertest.NewSource(object("0-0", "first")))
			handlers := make([]witness, 10)
			begun := make(chan struct{})
			handlers[0].also = sync.OnceFunc(func() { close(begun) })
			for i := range handlers {
				handle(t, inf, &handlers[i])
			}
			stop := testkit.StartShared(t, inf)
			churn(src, 100, func(i int) {
				if i == 50 {
					<-begun
					stop()
					for i := range handlers {
						handlers[i].close(t)
					}
				}
			})
			checkStopped(t, inf, true)
			for i := range handlers {
				handlers[i].close(t)
			}
		},
	}.inRealTime(t)
	sharedCases{
		"lose nothing across relists": func(t *testing.T, s shared) {
			// The time of a bubble stands still while any of its goroutines can run.
			checkJoins(t, s, func() { time.Sleep(100 * time.Millisecond) }, func(src *source, i int) {
				if i%50 == 0 {
					src.Expire()
					time.Sleep(10 * time.Second)
				}
			})
		},
	}.inBubbles(t)
}

// witness is a handler that checks each event against the events before it.
type witness struct {
	also func() // if not nil, is called in each call; must be set before the handler is added

	mu     sync.Mutex // protects the rest, and is held in each call
	view   map[string]string
	broken error
	closed bool
	target map[string]string
	done   chan struct{}
}

func (w *witness) OnAdd(obj any, _ bool)      { w.follow("add", nil, obj) }
func (w *witness) OnUpdate(before, after any) { w.follow("update", before, after) }
func (w *witness) OnDelete(obj any) {
	if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		w.follow("tombstone", nil, tomb.Obj)
		return
	}
	w.follow("delete", nil, obj)
}

func (w *witness) follow(what string, before, obj any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.apply(what, before, obj); err != nil {
		w.broken = errors.Join(w.broken, fmt.Errorf("%s %s: %w", what, stateOf(obj), err))
	}
	if w.also != nil {
		w.also()
	}
	w.check()
}

func (w *witness) apply(what string, before, obj any) error {
	if w.view == nil {
		w.view = map[string]string{}
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	known, there := w.view[m.GetName()]
	if what == "delete" || what == "tombstone" {
		delete(w.view, m.GetName())
	} else {
		w.view[m.GetName()] = m.GetResourceVersion()
	}
	switch {
	case w.closed:
		return errors.New("after the stop")
	case there == (what == "add"):
		return fmt.Errorf("the object was known before: %t", there)
	case m.GetResourceVersion() < known: // all have the same number of digits
		return fmt.Errorf("after %s", known)
	case what == "delete" && m.GetResourceVersion() == known:
		return errors.New("with the version of the last state, not with that of the delete")
	case what == "tombstone" && m.GetResourceVersion() != known:
		return fmt.Errorf("not the last known state, %s", known)
	case what == "update" && stateOf(before) != m.GetName()+"@"+short(known):
		return fmt.Errorf("of %s after %s", stateOf(before), known)
	}
	return nil
}

func (w *witness) check() {
	if w.target != nil && maps.Equal(w.target, w.view) {
		close(w.done)
		w.target = nil
	}
}

// await waits until w has all events of the current state of src, and no call is in progress.
func (w *witness) await(src *source) {
	target := map[string]string{}
	for _, obj := range src.Objects() {
		target[obj.Name] = obj.ResourceVersion
	}
	w.mu.Lock()
	w.target, w.done = target, make(chan struct{})
	w.check()
	w.mu.Unlock()
	<-w.done
}

func (w *witness) close(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	noError(t, w.broken)
}

// churn lets four goroutines write to src, each to its own objects. It returns when all have
// finished.
func churn(src *source, each int, also func(i int)) {
	var writers sync.WaitGroup
	for w := range 4 {
		random := rand.New(rand.NewPCG(uint64(w), 1))
		writers.Go(func() {
			for i := range each {
				name := fmt.Sprintf("%d-%d", w, random.IntN(3))
				if random.IntN(4) == 0 {
					_, _ = src.Delete(keyOf(name)) // the object may not exist
				} else {
					src.Apply(object(name, fmt.Sprint(i)))
				}
				if w == 0 {
					also(i)
				}
			}
		})
	}
	writers.Wait()
}

func checkJoins(t *testing.T, s shared, pause func(), also func(src *source, i int)) {
	src := informertest.NewSource(object("0-0", "first"))
	inf := s.make(src, &corev1.ConfigMap{}, 0, byNamespace())
	var first, last witness
	needShutDown(t, handle(t, inf, &first))
	testkit.StartShared(t, inf)

	written := make(chan struct{})
	var joiners sync.WaitGroup
	for i := range 3 {
		joiners.Go(func() {
			for {
				select {
				case <-written:
					return
				default:
				}
				pause()
				var f witness
				reg := handle(t, inf, &f)
				if i > 0 {
					<-reg.HasSyncedChecker().Done()
				}
				_, err := inf.GetIndexer().ByIndex(cache.NamespaceIndex, "default")
				wantError(t, false, "ByIndex", err)
				wantError(t, false, "shut down", shutDown(inf, reg))
				f.close(t)
			}
		})
	}
	churn(src, 300, func(i int) {
		if i == 150 {
			handle(t, inf, &last)
		}
		also(src, i)
	})
	close(written)
	joiners.Wait()
	first.await(src)
	last.await(src)
	first.close(t)
	last.close(t)
}
