package informertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// patience is how long Expect and Run wait at most. In a synctest bubble that takes no real time.
const patience = 2 * time.Minute

// Recorder is a watcher that records its events and checks each of them against the informer's
// contract. The zero Recorder is ready to use. A Recorder must not be copied. Its methods may be
// called from any goroutine, except Expect, which must be called from the goroutine of the test.
//
// A Hook may return an error. With WatcherOptions.Retry the informer then delivers the event again,
// perhaps merged with newer ones. Events and Expect count each attempt as an event. Without Retry,
// or after the last attempt, the informer delivers the next event. Err accepts both.
type Recorder[T informer.Object] struct {
	// Hook, if not nil, is called for every event after the event has been recorded, while no lock
	// is held. It may block. The recorder returns the error of Hook to the informer. Set Hook
	// before the recorder is added to an informer.
	Hook func(ctx context.Context, e informer.Event[T]) error

	mu       sync.Mutex // protects the fields below
	events   []informer.Event[T]
	expected int // number of events that Expect has consumed
	view     map[place]T
	failed   map[place]T // the objects before events whose Hook has failed; the zero T if there was none
	broken   error
	more     chan struct{} // closed at the next event; nil if no call waits
}

// place is where an object is.
type place struct {
	cluster string
	types.NamespacedName
}

func placeOf[T informer.Object](e informer.Event[T]) place { return place{e.Cluster(), e.Key()} }

// String returns the place in the notation of Expect.
func (p place) String() string {
	key := strings.TrimPrefix(p.NamespacedName.String(), "/")
	if p.cluster == "" {
		return key
	}
	return p.cluster + "|" + key
}

// Add records e, calls Hook, and returns the error of Hook. The informer calls it.
func (r *Recorder[T]) Add(ctx context.Context, e informer.Event[T]) error {
	return r.record(ctx, informer.EventAdded, e)
}

// Update records e, calls Hook, and returns the error of Hook. The informer calls it.
func (r *Recorder[T]) Update(ctx context.Context, e informer.Event[T]) error {
	return r.record(ctx, informer.EventUpdated, e)
}

// Delete records e, calls Hook, and returns the error of Hook. The informer calls it.
func (r *Recorder[T]) Delete(ctx context.Context, e informer.Event[T]) error {
	return r.record(ctx, informer.EventDeleted, e)
}

func (r *Recorder[T]) record(ctx context.Context, called informer.EventType, e informer.Event[T]) error {
	r.mu.Lock()
	before := r.view[placeOf(e)]
	err := r.apply(called, e)
	if undone, again := r.failed[placeOf(e)]; again && err != nil {
		before = undone
		err = r.applyAgain(called, e, undone)
	}
	delete(r.failed, placeOf(e))
	if err != nil && r.broken == nil {
		r.broken = fmt.Errorf("event %d, %s %s (%s): %w", len(r.events), e.Type, placeOf(e), e.Origin, err)
	}
	r.events = append(r.events, e)
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
	r.mu.Unlock()
	if r.Hook == nil {
		return nil
	}
	err = r.Hook(ctx, e)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.failed == nil {
			r.failed = map[place]T{}
		}
		r.failed[placeOf(e)] = before
	}
	return err
}

// applyAgain brings the view up to date for e, which may replace an event whose Hook has failed.
// undone is the object before that event, or the zero T.
func (r *Recorder[T]) applyAgain(called informer.EventType, e informer.Event[T], undone T) error {
	var none T
	if undone != none {
		r.view[placeOf(e)] = undone
		return r.apply(called, e)
	}
	delete(r.view, placeOf(e))
	err := r.apply(called, e)
	if e.Type == informer.EventDeleted && e.Old != none && e.New == none {
		return nil // the failed event added the object, which has changed since
	}
	return err
}

// apply brings the view up to date. It returns an error if e contradicts the view.
func (r *Recorder[T]) apply(called informer.EventType, e informer.Event[T]) error {
	var none T
	if called != e.Type {
		return fmt.Errorf("was passed to the method for %s", called)
	}
	if r.view == nil {
		r.view = map[place]T{}
	}
	known, there := r.view[placeOf(e)]
	switch e.Type {
	case informer.EventAdded:
		r.view[placeOf(e)] = e.New
		if there && (e.Cluster() == "" || e.Origin != informer.OriginInitial) { // a cluster may have left silently
			return fmt.Errorf("was there already, at version %s", known.GetResourceVersion())
		}
		if e.Old != none {
			return fmt.Errorf("has an Old")
		}
		return nil
	case informer.EventUpdated:
		r.view[placeOf(e)] = e.New
	case informer.EventDeleted:
		delete(r.view, placeOf(e))
		if e.New != none {
			return fmt.Errorf("has a New")
		}
	}
	if tombstone := e.Type == informer.EventDeleted && e.Origin == informer.OriginInitial && e.FinalStateUnknown; tombstone && !there {
		return nil // a durable store kept the tombstone for watchers that had not seen the delete
	}
	if !there {
		return fmt.Errorf("was not there")
	}
	if e.Old == none {
		return fmt.Errorf("has no Old")
	}
	if !same(e.Old, known) && !e.FinalStateUnknown {
		return fmt.Errorf("has an Old of version %s that is not the New before, of version %s", e.Old.GetResourceVersion(), known.GetResourceVersion())
	}
	return nil
}

// same reports whether two objects are the same state of one object. Stores that decode their
// objects never return the same pointer twice.
func same[T informer.Object](a, b T) bool {
	return a == b || a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// Events returns all events so far, in the order in which they were recorded. It does not block.
func (r *Recorder[T]) Events() []informer.Event[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// View returns the objects that result from the events so far, by key: the state that a program has
// if it builds its state from the events. For an informer over clusters, see ViewIn. View does not
// block.
func (r *Recorder[T]) View() map[types.NamespacedName]T { return r.ViewIn("") }

// ViewIn returns the objects of one cluster that result from the events so far, as View does. If
// the cluster has left without delete events, its objects stay in the view. ViewIn does not block.
func (r *Recorder[T]) ViewIn(cluster string) map[types.NamespacedName]T {
	r.mu.Lock()
	defer r.mu.Unlock()
	view := map[types.NamespacedName]T{}
	for at, obj := range r.view {
		if at.cluster == cluster {
			view[at.NamespacedName] = obj
		}
	}
	return view
}

// Err returns an error for the first event that contradicts the events before it, or nil. An event
// contradicts them if it adds an object that is there, or updates or deletes an object that is not
// there. It also contradicts them if its Old is not the New of the previous event of the same
// object. Err compares Old and New by UID and resourceVersion. Objects of a client-go fake have
// neither, so Err accepts any Old of them. Err does not block.
//
// There are three exceptions. If FinalStateUnknown is set, Old may be any state of the object. A
// delete that also has OriginInitial may be of an object that is not there, because a Durable may
// have kept it as a tombstone. In an informer over clusters, an add with OriginInitial may repeat,
// because the cluster may have left without delete events and come back.
//
// Err does not suit an informer over a source of shards.Set.Source. Objects leave such an informer
// without an event, so a correct add may repeat, and Err returns an error for it.
func (r *Recorder[T]) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken
}

// Expect waits for the next len(want) events, and fails and ends the test if they are not the
// events in want. An event is written as its type and its key, such as "added default/web" or
// "deleted node-1", or as "added east|default/web" for an object of cluster east. Expect checks
// the order only among the events of one object, because an informer promises no other order.
// Expect also fails the test if the events contradict each other, see Err, or do not come within
// two minutes. In a synctest bubble the two minutes take no real time. The next Expect begins
// after these events.
//
// Without want, Expect does not wait, and fails the test if there is an event that no Expect has
// consumed. Call synctest.Wait before such a call, or expect a later event instead.
func (r *Recorder[T]) Expect(t testing.TB, want ...string) {
	t.Helper()
	for _, event := range want {
		if verb, _, _ := strings.Cut(event, " "); verb != "added" && verb != "updated" && verb != "deleted" {
			t.Fatalf("Expect: %q does not begin with added, updated or deleted", event)
		}
	}
	if len(want) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range r.events[r.expected:] {
			t.Errorf("unexpected event: %s %s", e.Type, placeOf(e))
		}
		return
	}
	got, err := r.take(t.Context(), len(want))
	byKey := func(a, b string) int {
		_, keyA, _ := strings.Cut(a, " ")
		_, keyB, _ := strings.Cut(b, " ")
		return strings.Compare(keyA, keyB)
	}
	slices.SortStableFunc(got, byKey)
	want = slices.Clone(want)
	slices.SortStableFunc(want, byKey)
	if !slices.Equal(got, want) {
		late := ""
		if err != nil {
			late = fmt.Sprintf(" (%v)", err)
		}
		t.Fatalf("expected the events %q, in the order of their keys, got %q%s", want, got, late)
	}
	if err := r.Err(); err != nil {
		t.Fatalf("the events contradict each other: %v", err)
	}
}

// take waits for the next n events and returns them in the notation of Expect. If they do not all
// come in time, it returns those that came and an error.
func (r *Recorder[T]) take(ctx context.Context, n int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var taken []string
	for {
		r.mu.Lock()
		for len(taken) < n && r.expected < len(r.events) {
			e := r.events[r.expected]
			r.expected++
			taken = append(taken, fmt.Sprintf("%s %s", e.Type, placeOf(e)))
		}
		if len(taken) == n {
			r.mu.Unlock()
			return taken, nil
		}
		if r.more == nil {
			r.more = make(chan struct{})
		}
		more := r.more
		r.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return taken, fmt.Errorf("after %d of %d: %w", len(taken), n, ctx.Err())
		}
	}
}
