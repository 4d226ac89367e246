package model_test

import (
	"context"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// tap is the source of one process. It records the versions that it delivers.
type tap struct {
	*source
	synced func() bool // reports whether the informer has synced

	mu      sync.Mutex          // protects the rest
	lists   int                 // number of complete lists
	first   uint64              // the version of the first list, if the informer had not synced before it
	offered map[presence]bool   // versions that a watch was about to deliver
	taken   map[presence]string // versions that a watch has delivered, each with its key
	gone    map[types.UID]bool  // objects whose delete a watch has delivered
}

func (s *tap) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := s.source.ListWithContext(ctx, opts)
	if all, ok := list.(*metav1.List); err == nil && ok && all.Continue == "" && opts.Limit != 1 {
		s.listed(all.ResourceVersion)
	}
	return list, err
}

func (s *tap) listed(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists++; s.lists == 1 && !s.synced() {
		s.first = versionNumber(version)
	}
}

func (s *tap) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	inner, err := s.source.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	t := &tapped{
		Interface: inner, tap: s, out: make(chan watch.Event), stop: make(chan struct{}),
		streaming: opts.SendInitialEvents != nil && *opts.SendInitialEvents,
	}
	go t.run()
	return t, nil
}

// tapped is one watch.
type tapped struct {
	watch.Interface
	tap       *tap
	out       chan watch.Event
	stop      chan struct{}
	once      sync.Once
	streaming bool // the watch is still sending its initial objects
}

func (t *tapped) ResultChan() <-chan watch.Event { return t.out }

func (t *tapped) Stop() {
	t.Interface.Stop()
	t.once.Do(func() { close(t.stop) })
}

func (t *tapped) run() {
	defer close(t.out)
	for e := range t.Interface.ResultChan() {
		obj, _ := e.Object.(configMap)
		live := obj != nil && !t.streaming && e.Type != watch.Bookmark
		if live {
			t.tap.note(e.Type, obj, false)
		}
		if e.Type == watch.Bookmark && obj.Annotations[metav1.InitialEventsAnnotationKey] != "" {
			t.streaming = false
			t.tap.listed(obj.ResourceVersion)
		}
		select {
		case t.out <- e:
			if live {
				t.tap.note(e.Type, obj, true)
			}
		case <-t.stop:
			return
		}
	}
}

// note records an event that a watch is about to deliver, or has delivered.
func (s *tap) note(what watch.EventType, obj configMap, delivered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case what == watch.Deleted:
		s.gone[obj.UID] = true
	case delivered:
		s.taken[presenceOf(obj)] = "default/" + obj.Name
	default:
		s.offered[presenceOf(obj)] = true
	}
}

// watched reports whether a watch delivered a version of an object, or tried to.
func (s *tap) watched(p presence) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offered[p]
}

func (s *tap) end(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[uid]
}

// missing returns the versions that watches delivered since the last call and that the ledger
// does not have.
func (s *tap) missing(l *incarnation) (missing []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, key := range s.taken {
		if f, _ := l.t.fact(p); !l.excused(key) && !strings.HasSuffix(f.value, " bad") && find(l.entries(key), -1, p) < 0 {
			missing = append(missing, key+" "+p.String())
		}
	}
	clear(s.taken)
	return missing
}

func (s *tap) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

func (s *tap) firstList() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}
