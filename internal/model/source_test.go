package model_test

import (
	"context"
	"maps"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
)

// tap is the source of one process. It records the versions that it delivers.
type tap struct {
	*source
	synced func() bool // reports whether the informer has synced

	mu      sync.Mutex          // protects the rest
	begun   map[string]int      // numbers of lists and streams that have begun, by namespace; "" is all
	lists   map[string]int      // numbers of those that were complete
	first   map[string]uint64   // the version of the first list, if the informer had not synced before it
	offered map[presence]bool   // versions that a watch was about to deliver
	taken   map[presence]string // versions that a watch has delivered, each with its key
	gone    map[types.UID]bool  // objects whose delete a watch has delivered
}

func (s *tap) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := s.client("").List(ctx, opts)
	if err != nil {
		return nil, err // and not a typed nil in an interface
	}
	return list, nil
}

func (s *tap) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return s.client("").Watch(ctx, opts)
}

func (s *tap) client(namespace string) *tapClient {
	return &tapClient{UntypedClient: s.Namespace(namespace), tap: s, namespace: namespace}
}

// tapClient is the client for a namespace, or for all.
type tapClient struct {
	informer.UntypedClient[*metav1.List]
	tap       *tap
	namespace string
}

func (c *tapClient) List(ctx context.Context, opts metav1.ListOptions) (*metav1.List, error) {
	list, err := c.UntypedClient.List(ctx, opts)
	if err == nil && opts.Continue == "" && opts.Limit != 1 {
		c.tap.begins(c.namespace)
	}
	if err == nil && list.Continue == "" && opts.Limit != 1 {
		c.tap.listed(c.namespace, list.ResourceVersion)
	}
	return list, err
}

func (s *tap) begins(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun[namespace]++
}

func (s *tap) listed(namespace, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists[namespace]++; s.lists[namespace] == 1 && !s.synced() {
		s.first[namespace] = versionNumber(version)
	}
}

func (c *tapClient) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	inner, err := c.UntypedClient.Watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	t := &tapped{
		Interface: inner, tap: c.tap, namespace: c.namespace, out: make(chan watch.Event), stop: make(chan struct{}),
		streaming: opts.SendInitialEvents != nil && *opts.SendInitialEvents,
	}
	if t.streaming {
		c.tap.begins(c.namespace)
	}
	go t.run()
	return t, nil
}

type tapped struct {
	watch.Interface
	tap       *tap
	namespace string
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
		p, key := presenceOf(obj), ""
		if live {
			key = keyNamed(obj.Name) // once it is delivered, the object is the informer's
			t.tap.note(e.Type, p, key, false)
		}
		if e.Type == watch.Bookmark && obj.Annotations[metav1.InitialEventsAnnotationKey] != "" {
			t.streaming = false
			t.tap.listed(t.namespace, obj.ResourceVersion)
		}
		select {
		case t.out <- e:
			if live {
				t.tap.note(e.Type, p, key, true)
			}
		case <-t.stop:
			return
		}
	}
}

// note records an event that a watch is about to deliver, or has delivered.
func (s *tap) note(what watch.EventType, p presence, key string, delivered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case what == watch.Deleted:
		s.gone[p.uid] = true
	case delivered:
		s.taken[p] = key
	default:
		s.offered[p] = true
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
		if f, _ := l.t.fact(p); !l.excused(key) && !l.hasLeft(key) && !strings.HasSuffix(f.value, " bad") && find(l.entries(key), -1, p) < 0 {
			missing = append(missing, key+" "+p.String())
		}
	}
	clear(s.taken)
	return missing
}

// hasLeft reports whether the namespace of an object was not read at some time since the last settling.
func (l *incarnation) hasLeft(key string) bool {
	namespace, _, _ := strings.Cut(key, "/")
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left[namespace]
}

// count returns how many lists have begun that may show the object of that key.
func (s *tap) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	namespace, _, _ := strings.Cut(key, "/")
	return s.begun[""] + s.begun[namespace]
}

// firstLists returns the version of the first list, by namespace; "" is all.
func (s *tap) firstLists() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.first)
}
