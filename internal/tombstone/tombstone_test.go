package tombstone

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// store is a Store with fixed contents.
type store struct {
	objs []any
	err  error
}

func (s store) Tombstones(context.Context) ([]any, error) { return s.objs, s.err }

func deleted(name string, uid types.UID) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}
}

func id(name string, uid types.UID) ID { return ID{"default/" + name, uid} }

func checkPassed(t *testing.T, s *Set, after, upTo int64, want map[string][]types.UID) {
	t.Helper()
	if got := s.Passed(after, upTo); !maps.EqualFunc(got, want, func(a, b []types.UID) bool { return reflect.DeepEqual(a, b) }) {
		t.Errorf("passed after %d up to %d: %v, want %v", after, upTo, got, want)
	}
}

func TestATombstoneHasPassedWhenItsPositionIsReached(t *testing.T) {
	s := New(store{})
	s.Add([]ID{id("a", "1")}, 0) // found at the start
	s.Add([]ID{id("b", "2")}, 5)
	none, a, b := map[string][]types.UID{}, map[string][]types.UID{"default/a": {"1"}}, map[string][]types.UID{"default/b": {"2"}}
	checkPassed(t, s, -1, -1, none)
	checkPassed(t, s, -1, 4, a)
	checkPassed(t, s, 0, 4, none)
	checkPassed(t, s, 0, 5, b)
	checkPassed(t, s, 5, 9, none)
	if got := s.Count(); got != 2 {
		t.Errorf("it counts %d tombstones, want 2", got)
	}
	s.Remove(b)
	checkPassed(t, s, -1, 9, a)
	if got := s.Count(); got != 1 {
		t.Errorf("it counts %d tombstones, want 1", got)
	}
}

func TestTombstonesOfOneKeyAreToldApartByTheirUID(t *testing.T) {
	s := New(store{})
	s.Add([]ID{id("a", "1")}, 1)
	s.Add([]ID{id("a", "2")}, 2)
	checkPassed(t, s, 0, 1, map[string][]types.UID{"default/a": {"1"}})
	s.Remove(map[string][]types.UID{"default/a": {"1"}})
	checkPassed(t, s, 0, 2, map[string][]types.UID{"default/a": {"2"}})
}

func TestASecondDeleteOfOneObjectMustBePassedToo(t *testing.T) {
	s := New(store{})
	s.Add([]ID{id("a", "1")}, 3)
	s.Add([]ID{id("a", "1")}, 7)
	checkPassed(t, s, 2, 6, map[string][]types.UID{})
	checkPassed(t, s, 3, 7, map[string][]types.UID{}) // the first delete counts for the lower bound
	checkPassed(t, s, 2, 7, map[string][]types.UID{"default/a": {"1"}})
}

func TestANilSetHasNoTombstones(t *testing.T) {
	var s *Set
	if got := s.Count(); got != 0 {
		t.Errorf("it counts %d", got)
	}
}

func TestReadReturnsObjectsOfTheSetUpToAPosition(t *testing.T) {
	a, b := deleted("a", "1"), deleted("b", "2")
	stored := store{objs: []any{a, "no object", deleted("a", "other"), deleted("unknown", "1"), b, nil}}
	s := New(stored)
	s.Add([]ID{id("a", "1")}, 0)
	s.Add([]ID{id("b", "2")}, 5)
	for upTo, want := range map[int64][]any{-1: nil, 0: {a}, 4: {a}, 5: {a, b}} {
		if got, err := s.Read(t.Context(), upTo); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("up to %d: %v (%v), want %v", upTo, got, err, want)
		}
	}
	if len(stored.objs) != 6 || stored.objs[1] != "no object" {
		t.Errorf("it has changed the store's own slice: %v", stored.objs)
	}
}

func TestReadReturnsTheErrorOfTheStore(t *testing.T) {
	locked := errors.New("locked")
	if objs, err := New(store{err: locked}).Read(t.Context(), 1); !errors.Is(err, locked) || objs != nil {
		t.Errorf("%v, %v", objs, err)
	}
}

func TestFollowLooksOnceASecondWhileThereAreTombstones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := New(store{})
		var looks atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Follow(ctx, func() {
				if looks.Add(1)%3 == 0 {
					s.Remove(s.Passed(-1, 9))
				}
			})
		}()
		check := func(after time.Duration, want int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := looks.Load(); got != want {
				t.Errorf("it has looked %d times, want %d", got, want)
			}
		}
		check(time.Hour, 0)
		s.Add([]ID{id("a", "1")}, 1)
		check(2*time.Second, 2)
		check(time.Hour, 3) // until the last one is removed
		s.Add([]ID{id("b", "1")}, 2)
		check(time.Second, 4)
		cancel()
		check(time.Hour, 4)
		<-done
	})
}
