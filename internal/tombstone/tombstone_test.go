package tombstone

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/internal/object"
)

// store is a Store with fixed contents.
type store struct {
	stored object.Entries
	err    error
}

func (s store) Tombstones(context.Context) (object.Entries, error) { return s.stored, s.err }

func deleted(name string, uid types.UID) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}
}

func id(name string, uid types.UID) ID { return ID{"default/" + name, uid} }

// watchers are what watchers have handled, and keep.
type watchers struct {
	after, upTo int64
	keepers     []Keeper
}

func (w *watchers) handled() (after, upTo int64, keepers []Keeper) {
	return w.after, w.upTo, w.keepers
}

// newSet returns a Set over a store of the objects, whose watchers have handled every delete.
func newSet(objs ...any) (*Set, *watchers) { return newSetOver(object.Unkeyed(objs)) }

func newSetOver(stored object.Entries) (*Set, *watchers) {
	w := &watchers{after: -1, upTo: 9}
	return New(store{stored: stored}, w.handled), w
}

type keeper []ID

func (keeper) Keep()              {}
func (k keeper) Keeps(id ID) bool { return slices.Contains(k, id) }

func (w *watchers) checkDue(t *testing.T, s *Set, after, upTo int64, want map[string][]types.UID) {
	t.Helper()
	w.after, w.upTo = after, upTo
	if got := s.Due(); !maps.EqualFunc(got, want, func(a, b []types.UID) bool { return reflect.DeepEqual(a, b) }) {
		t.Errorf("due after %d up to %d: %v, want %v", after, upTo, got, want)
	}
}

func TestATombstoneIsDueWhenItsPositionIsReached(t *testing.T) {
	s, w := newSet()
	s.Add([]ID{id("a", "1")}, 0) // found at the start
	s.Add([]ID{id("b", "2")}, 5)
	none, a, b := map[string][]types.UID{}, map[string][]types.UID{"default/a": {"1"}}, map[string][]types.UID{"default/b": {"2"}}
	w.checkDue(t, s, -1, -1, none)
	w.checkDue(t, s, -1, 4, a)
	w.checkDue(t, s, 0, 4, none)
	w.checkDue(t, s, 0, 5, b)
	w.checkDue(t, s, 5, 9, none)
	if got := s.Count(); got != 2 {
		t.Errorf("it counts %d tombstones, want 2", got)
	}
	s.Remove(b)
	w.checkDue(t, s, -1, 9, a)
	if got := s.Count(); got != 1 {
		t.Errorf("it counts %d tombstones, want 1", got)
	}
}

func TestTombstonesOfOneKeyAreToldApartByTheirUID(t *testing.T) {
	s, w := newSet()
	s.Add([]ID{id("a", "1")}, 1)
	s.Add([]ID{id("a", "2")}, 2)
	w.checkDue(t, s, 0, 1, map[string][]types.UID{"default/a": {"1"}})
	s.Remove(map[string][]types.UID{"default/a": {"1"}})
	w.checkDue(t, s, 0, 2, map[string][]types.UID{"default/a": {"2"}})
}

func TestASecondDeleteOfOneObjectMustBeHandledToo(t *testing.T) {
	s, w := newSet()
	s.Add([]ID{id("a", "1")}, 3)
	s.Add([]ID{id("a", "1")}, 7)
	w.checkDue(t, s, 2, 6, map[string][]types.UID{})
	w.checkDue(t, s, 3, 7, map[string][]types.UID{}) // the first delete counts for the lower bound
	w.checkDue(t, s, 2, 7, map[string][]types.UID{"default/a": {"1"}})
}

func TestANilSetHasNoTombstones(t *testing.T) {
	var s *Set
	if got := s.Count(); got != 0 {
		t.Errorf("it counts %d", got)
	}
}

func TestReadReturnsObjectsOfTheSetUpToAPosition(t *testing.T) {
	a, b := deleted("a", "1"), deleted("b", "2")
	stored := []any{a, "no object", deleted("a", "other"), deleted("unknown", "1"), b, nil}
	s, _ := newSet(stored...)
	s.Add([]ID{id("a", "1")}, 0)
	s.Add([]ID{id("b", "2")}, 5)
	for upTo, want := range map[int64]object.Entries{
		-1: {}, 0: entries(map[string]any{"default/a": a}), 4: entries(map[string]any{"default/a": a}),
		5: entries(map[string]any{"default/a": a, "default/b": b}),
	} {
		if got, err := s.Read(t.Context(), upTo); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("up to %d: %v (%v), want %v", upTo, got, err, want)
		}
	}
	if len(stored) != 6 || stored[1] != "no object" {
		t.Errorf("it has changed the store's own slice: %v", stored)
	}
}

func TestReadTellsObjectsOfOneNameAndUIDApartByTheirKeys(t *testing.T) {
	east, west := deleted("a", "1"), deleted("a", "1")
	s, w := newSetOver(entries(map[string]any{"east|default/a": east, "west|default/a": west}))
	s.Add([]ID{{"east|default/a", "1"}}, 3)
	s.Add([]ID{{"west|default/a", "1"}}, 5)
	want := entries(map[string]any{"east|default/a": east})
	if got, err := s.Read(t.Context(), 4); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v (%v), want %v", got, err, want)
	}
	w.checkDue(t, s, 3, 9, map[string][]types.UID{"west|default/a": {"1"}})
}

// entries returns entries in the order of their keys.
func entries(objs map[string]any) (es object.Entries) {
	for _, key := range slices.Sorted(maps.Keys(objs)) {
		es.Append(key, objs[key])
	}
	return es
}

func TestReadReturnsTheErrorOfTheStore(t *testing.T) {
	locked := errors.New("locked")
	if objs, err := New(store{err: locked}, nil).Read(t.Context(), 1); !errors.Is(err, locked) || objs.Len() > 0 {
		t.Errorf("%v, %v", objs, err)
	}
}

func TestATombstoneThatAWatcherKeepsIsNotDue(t *testing.T) {
	s, w := newSet()
	s.Add([]ID{id("a", "1"), id("a", "2"), id("b", "3")}, 1)
	w.keepers = []Keeper{keeper{}, keeper{id("a", "1"), id("b", "3")}}
	w.checkDue(t, s, -1, 9, map[string][]types.UID{"default/a": {"2"}})
	w.keepers = nil
	if got := s.Due(); len(got) != 2 || len(got["default/a"]) != 2 {
		t.Errorf("due when no watcher keeps any: %v", got)
	}
}

func TestFollowLooksOnceASecondWhileThereAreTombstones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var looks, wakes atomic.Int64
		var handled atomic.Bool
		s := New(store{}, func() (after, upTo int64, keepers []Keeper) {
			looks.Add(1)
			if handled.Load() {
				return -1, 9, nil
			}
			return -1, -1, nil
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Follow(ctx, func() { wakes.Add(1) })
		}()
		check := func(after time.Duration, wantLooks, wantWakes int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if looks.Load() != wantLooks || wakes.Load() != wantWakes {
				t.Errorf("it has looked %d times and woken %d times, want %d and %d", looks.Load(), wakes.Load(), wantLooks, wantWakes)
			}
		}
		check(time.Hour, 0, 0)
		s.Add([]ID{id("a", "1")}, 1)
		check(2*time.Second, 2, 0)
		if got := s.TakeRipe(); got != nil {
			t.Errorf("ripe before Follow has found it due: %v", got)
		}
		handled.Store(true)
		check(3*time.Second, 5, 1) // not again before TakeRipe
		ripe := s.TakeRipe()
		if len(ripe) != 1 || s.TakeRipe() != nil {
			t.Errorf("ripe: %v, and a second time", ripe)
		}
		check(time.Second, 7, 2) // the store has not forgotten it: TakeRipe has looked once
		s.Remove(s.TakeRipe())
		check(time.Hour, 9, 2)
		s.Add([]ID{id("b", "1")}, 2)
		check(time.Second, 10, 3)
		handled.Store(false)
		if got := s.TakeRipe(); len(got) != 0 {
			t.Errorf("ripe, although a watcher has registered since: %v", got)
		}
		cancel()
		check(time.Hour, 11, 3)
		<-done
	})
}
