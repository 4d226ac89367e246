package shards_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// The kinds of objects that a call reads. A call for a key reads the object of that name of each.
const (
	widgets = iota
	gadgets
	kinds
)

const (
	namespace = "default"
	names     = 120
)

// follow tells every change of the objects of a client, without an informer. When it must list again,
// it tells all objects at once.
func follow(ctx context.Context, client dynamic.ResourceInterface, listed func(*unstructured.UnstructuredList), changed func(obj object, deleted bool)) {
	const pause = 20 * time.Millisecond
	for ; ctx.Err() == nil; pass(ctx, pause) {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		listed(list)
		rv := list.GetResourceVersion()
		for ; rv != ""; pass(ctx, pause) {
			w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: rv, AllowWatchBookmarks: true})
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || ctx.Err() != nil {
				break
			}
			if err != nil {
				continue
			}
			for e := range w.ResultChan() {
				obj, ok := e.Object.(object)
				if e.Type == watch.Error || !ok {
					rv = ""
					break
				}
				rv = obj.GetResourceVersion()
				if e.Type != watch.Bookmark {
					changed(obj, e.Type == watch.Deleted)
				}
			}
			w.Stop()
		}
	}
}

// truth is what has happened to the objects of one kind.
type truth struct {
	mu      sync.Mutex
	now     map[string]object
	changes []uint64 // their versions
	deaths  []death
}

// death is the delete of an object.
type death struct {
	name    string
	uid     types.UID
	tick    int64     // of its last state
	version uint64    // not before the delete
	known   time.Time // when the test was told
}

func (tr *truth) listed(list *unstructured.UnstructuredList) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	now := map[string]object{}
	for i := range list.Items {
		obj := &list.Items[i]
		now[obj.GetName()] = obj
		if old := tr.now[obj.GetName()]; old == nil || old.GetResourceVersion() != obj.GetResourceVersion() {
			tr.changes = append(tr.changes, version(obj.GetResourceVersion()))
		}
	}
	for name, old := range tr.now {
		if obj := now[name]; obj == nil || obj.GetUID() != old.GetUID() {
			tr.deaths = append(tr.deaths, death{name, old.GetUID(), tickOf(old), version(list.GetResourceVersion()), time.Now()})
		}
	}
	tr.now = now
}

func (tr *truth) changed(obj object, deleted bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	at := version(obj.GetResourceVersion())
	tr.changes = append(tr.changes, at)
	if !deleted {
		tr.now[obj.GetName()] = obj
		return
	}
	delete(tr.now, obj.GetName())
	tr.deaths = append(tr.deaths, death{obj.GetName(), obj.GetUID(), tickOf(obj), at, time.Now()})
}

func tickOf(obj object) int64 {
	tick, _, _ := unstructured.NestedInt64(obj.Object, "tick")
	return tick
}

// versions returns the versions of all changes, sorted.
func (tr *truth) versions() []uint64 {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Sorted(slices.Values(tr.changes))
}

// missed returns what no accepted call has seen of a kind: the newest states of objects, and deletes.
func (tr *truth) missed(r *recorder, kind int) (missed []string, deaths int) {
	byKey := map[string][]*call{}
	r.mu.Lock()
	for _, c := range r.calls {
		if c.accepted {
			byKey[c.Key] = append(byKey[c.Key], c)
		}
	}
	r.mu.Unlock()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for name, obj := range tr.now {
		if !slices.ContainsFunc(byKey[name], func(c *call) bool {
			return c.Seen[kind].UID == obj.GetUID() && c.Seen[kind].Tick >= tickOf(obj)
		}) {
			missed = append(missed, fmt.Sprintf("kind %d: no call has seen %s with tick %d, version %s", kind, name, tickOf(obj), obj.GetResourceVersion()))
		}
	}
	for _, d := range tr.deaths {
		if !slices.ContainsFunc(byKey[d.name], func(c *call) bool { return d.seen(c.Seen[kind], c.begun) }) {
			missed = append(missed, fmt.Sprintf("kind %d: no call has seen the delete of %s at version %d, known at %s", kind, d.name, d.version, d.known.Format(clock)))
		}
	}
	return missed, len(tr.deaths)
}

// seen reports whether a call that has begun at a time has seen that the object is gone.
func (d death) seen(s sight, begun time.Time) bool {
	switch {
	case s.UID == d.uid:
		return false
	case s.UID != "":
		return s.Tick > d.tick
	}
	return s.low() >= d.version || begun.After(d.known)
}

// writer writes objects until ctx ends. Other writers have other names.
type writer struct {
	client dynamic.ResourceInterface
	kind   schema.GroupVersionKind
	random *rand.Rand
	part   int
	of     int
}

// ticks counts the writes of a process. Each write has a tick of its own.
var ticks atomic.Int64

func (w *writer) write(ctx context.Context, every time.Duration) {
	var once []string // names that are used once: no later object makes up for a delete that is missed
	for n := 0; pass(ctx, every); n++ {
		if w.random.IntN(4) == 0 {
			name := fmt.Sprintf("once-%d-%d", w.part, n)
			w.put(ctx, name)
			if once = append(once, name); len(once) > 10 {
				_ = w.client.Delete(ctx, once[0], metav1.DeleteOptions{})
				once = once[1:]
			}
		}
		name := nameOf(w.part + w.of*w.random.IntN(names/w.of))
		if w.random.IntN(10) < 3 {
			err := w.client.Delete(ctx, name, metav1.DeleteOptions{})
			if err != nil || w.random.IntN(2) == 0 {
				continue // it was not there, or stays away for a while
			}
		}
		w.put(ctx, name)
	}
}

// put changes an object, or creates it. If it fails, another write makes up for it.
func (w *writer) put(ctx context.Context, name string) {
	tick := ticks.Add(1)
	_, err := w.client.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"tick":%d}`, tick), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		obj := &unstructured.Unstructured{Object: map[string]any{"tick": tick}}
		obj.SetGroupVersionKind(w.kind)
		obj.SetName(name)
		_, _ = w.client.Create(ctx, obj, metav1.CreateOptions{})
	}
}

func nameOf(n int) string { return fmt.Sprint("w", n) }
