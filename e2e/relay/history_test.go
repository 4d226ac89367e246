package relay_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// change is a change of one object.
type change struct {
	version uint64
	name    string
	deleted bool
}

// state has the version of each object.
type state map[string]uint64

func (s state) apply(c change) {
	if c.deleted {
		delete(s, c.name)
	} else {
		s[c.name] = c.version
	}
}

// history has all changes since a version, as the API server itself sends them.
type history struct {
	first state

	mu      sync.Mutex
	changes []change
}

// history begins to watch the API server, without the front.
func (w *world) history() *history {
	w.Helper()
	list, err := w.leases.List(w.Context(), metav1.ListOptions{})
	w.OK(err)
	h := &history{first: stateOf(list.Items)}
	changes, err := w.leases.Watch(context.Background(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	w.OK(err)
	var watching sync.WaitGroup
	var over atomic.Bool
	watching.Go(func() {
		for e := range changes.ResultChan() {
			obj, ok := e.Object.(*coordinationv1.Lease)
			if over.Load() {
				return
			}
			if !ok {
				w.Errorf("the watch of the API server brings %v", e.Object)
				return
			}
			h.mu.Lock()
			h.changes = append(h.changes, change{number(obj.ResourceVersion), obj.Name, e.Type == watch.Deleted})
			h.mu.Unlock()
		}
	})
	w.Cleanup(func() { over.Store(true); changes.Stop(); watching.Wait() })
	return h
}

func stateOf(leases []coordinationv1.Lease) state {
	s := state{}
	for _, l := range leases {
		s[l.Name] = number(l.ResourceVersion)
	}
	return s
}

// number returns a version as a number. Those of the API server are numbers.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// newest returns the version of the last change.
func (h *history) newest() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.changes) == 0 {
		return 0
	}
	return h.changes[len(h.changes)-1].version
}

// check returns an error unless the history of an agent is right: each list is the state of its version,
// no list is older than what the agent had, every change after a list is delivered, in the order of the
// versions, and the last change is delivered.
func (h *history) check(readings []reading) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var has uint64
	var s state
	for _, r := range readings {
		if r.version < has {
			return fmt.Errorf("a list has version %d after %d", r.version, has)
		}
		var next int
		s, next = h.at(r.version)
		if !maps.Equal(r.state, s) {
			return fmt.Errorf("the list of version %d is %v, want %v", r.version, r.state, s)
		}
		want := h.changes[next:]
		if len(r.changes) > len(want) || !slices.Equal(r.changes, want[:len(r.changes)]) {
			return fmt.Errorf("the changes after the list of version %d are %v, want the first of %v", r.version, r.changes, want)
		}
		has = r.version
		for _, c := range r.changes {
			s.apply(c)
			has = c.version
		}
	}
	if last, _ := h.at(^uint64(0)); !maps.Equal(s, last) {
		return fmt.Errorf("the state is %v at last, want %v", s, last)
	}
	return nil
}

// at returns the state of a version, and the number of changes up to it.
func (h *history) at(version uint64) (state, int) {
	s := maps.Clone(h.first)
	for i, c := range h.changes {
		if c.version > version {
			return s, i
		}
		s.apply(c)
	}
	return s, len(h.changes)
}
