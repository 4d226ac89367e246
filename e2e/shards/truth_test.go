package shards_test

import (
	"context"
	"fmt"
	"hash/fnv"
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

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

// The kinds of objects that a call reads. A call for a key reads the object of that name of each.
const (
	widgets = iota
	gadgets
	kinds
)

const names = 120

// spaces is the number of namespaces. The name of an object shows in which one it is.
const spaces = 30

func spaceOf(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprint("team-", h.Sum32()%spaces)
}

// follow delivers every change of the objects of a client, without an informer. When it must list again,
// it delivers all objects at once.
func follow(ctx context.Context, client dynamic.ResourceInterface, listed func(*unstructured.UnstructuredList), changed func(obj object, deleted bool)) {
	const pause = 20 * time.Millisecond
	for ; ctx.Err() == nil; stage.Pass(ctx, pause) {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		listed(list)
		rv := list.GetResourceVersion()
		for ; rv != ""; stage.Pass(ctx, pause) {
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
	changes []change
	deaths  []death
	lives   map[types.UID]*life
}

// change is a change of an object with a name.
type change struct {
	name    string
	version uint64
}

func newTruth() *truth {
	return &truth{now: map[string]object{}, lives: map[types.UID]*life{}}
}

// life is how long an object has lived at least, in versions.
type life struct {
	name     string
	from, to uint64
}

func (tr *truth) livesLocked(obj object, at uint64) {
	l := tr.lives[obj.GetUID()]
	if l == nil {
		l = &life{obj.GetName(), at, at}
		tr.lives[obj.GetUID()] = l
	}
	l.to = max(l.to, at)
}

// count returns how many objects there are.
func (tr *truth) count() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.now)
}

// blind returns the calls that have found no object of a kind, although one has lived from before the
// oldest to after the newest state that they may have read.
func (tr *truth) blind(r *recorder, kind int) (blind []string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	lives := map[string][]*life{}
	for _, l := range tr.lives {
		lives[l.name] = append(lives[l.name], l)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		s := c.Seen[kind]
		if c.ended.IsZero() || c.end.Call == 0 || s.UID != "" {
			continue
		}
		for _, l := range lives[c.Key] {
			if l.from <= s.low() && max(s.low(), s.high()) < l.to {
				blind = append(blind, fmt.Sprintf("kind %d, %s: %s has seen versions %d to %d, and the object lived from %d to %d",
					kind, c.Key, c, s.low(), s.high(), l.from, l.to))
			}
		}
	}
	return blind
}

// death is the delete of an object.
type death struct {
	name    string
	uid     types.UID
	tick    int64     // of its last state
	version uint64    // not before the delete
	alive   uint64    // a state of this version or a later one that lacks the object shows the delete
	known   time.Time // when the test was notified
}

func (tr *truth) listed(list *unstructured.UnstructuredList) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	now := map[string]object{}
	for i := range list.Items {
		obj := &list.Items[i]
		now[obj.GetName()] = obj
		tr.livesLocked(obj, version(obj.GetResourceVersion()))
		tr.livesLocked(obj, version(list.GetResourceVersion()))
		if old := tr.now[obj.GetName()]; old == nil || old.GetResourceVersion() != obj.GetResourceVersion() {
			tr.changes = append(tr.changes, change{obj.GetName(), version(obj.GetResourceVersion())})
		}
	}
	for name, old := range tr.now {
		if obj := now[name]; obj == nil || obj.GetUID() != old.GetUID() {
			tr.deaths = append(tr.deaths, death{name, old.GetUID(), tickOf(old), version(list.GetResourceVersion()), version(old.GetResourceVersion()), time.Now()})
		}
	}
	tr.now = now
}

func (tr *truth) changed(obj object, deleted bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	at := version(obj.GetResourceVersion())
	tr.changes = append(tr.changes, change{obj.GetName(), at})
	tr.livesLocked(obj, at)
	if !deleted {
		tr.now[obj.GetName()] = obj
		return
	}
	alive := at
	if last := tr.now[obj.GetName()]; last != nil && last.GetUID() == obj.GetUID() {
		alive = version(last.GetResourceVersion())
	}
	delete(tr.now, obj.GetName())
	tr.deaths = append(tr.deaths, death{obj.GetName(), obj.GetUID(), tickOf(obj), at, alive, time.Now()})
}

func tickOf(obj object) int64 {
	tick, _, _ := unstructured.NestedInt64(obj.Object, "tick")
	return tick
}

// versions returns the versions of the changes of objects with some names, sorted.
func (tr *truth) versions(of func(name string) bool) (all []uint64) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, c := range tr.changes {
		if of(c.name) {
			all = append(all, c.version)
		}
	}
	slices.Sort(all)
	return all
}

// missed returns what no accepted call has seen of a kind: the newest states of objects, and deletes,
// except those that may be missed, which are counted as unknown.
func (tr *truth) missed(r *recorder, kind int, may func(kind int, d death) bool) (missed []string, deaths, unknown int) {
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
		switch {
		case slices.ContainsFunc(byKey[d.name], func(c *call) bool { return d.seen(c.Seen[kind], c.begun) }):
		case may(kind, d):
			unknown++
		default:
			missed = append(missed, fmt.Sprintf("kind %d: no call has seen the delete of %s at version %d to %d, known at %s; calls: %q",
				kind, d.name, d.alive, d.version, d.known.Format(clock), sights(byKey[d.name], kind)))
		}
	}
	return missed, len(tr.deaths), unknown
}

// sights is which state of a kind each call has seen.
func sights(calls []*call, kind int) (all []string) {
	for _, c := range calls {
		s := c.Seen[kind]
		all = append(all, fmt.Sprintf("%s by %s: versions %d to %d, object %q", c.begun.Format(clock), c.Replica, s.low(), s.high(), s.UID))
	}
	return all
}

// seen reports whether a call that began at a time has seen that the object is gone.
func (d death) seen(s sight, begun time.Time) bool {
	switch {
	case s.UID == d.uid:
		return false
	case s.UID != "":
		return s.Tick > d.tick
	}
	return s.low() >= d.alive || begun.After(d.known)
}

// writer writes objects until ctx ends. Other writers have other names.
type writer struct {
	client dynamic.NamespaceableResourceInterface
	kind   schema.GroupVersionKind
	random *rand.Rand
	part   int
	of     int
}

// ticks counts the writes of a process. Each write has a tick of its own.
var ticks atomic.Int64

func (w *writer) write(ctx context.Context, every time.Duration) {
	var once []string // names that are used once: no later object makes up for a delete that is missed
	for n := 0; stage.Pass(ctx, every); n++ {
		if w.random.IntN(4) == 0 {
			name := fmt.Sprintf("once-%d-%d", w.part, n)
			w.put(ctx, name)
			if once = append(once, name); len(once) > 10 {
				_ = w.client.Namespace(spaceOf(once[0])).Delete(ctx, once[0], metav1.DeleteOptions{})
				once = once[1:]
			}
		}
		name := nameOf(w.part + w.of*w.random.IntN(names/w.of))
		if w.random.IntN(10) < 3 {
			err := w.client.Namespace(spaceOf(name)).Delete(ctx, name, metav1.DeleteOptions{})
			if err != nil || w.random.IntN(2) == 0 {
				continue // it was not there, or stays away for a while
			}
		}
		w.put(ctx, name)
	}
}

// put changes an object, or creates it. If it fails, another write makes up for it.
func (w *writer) put(ctx context.Context, name string) {
	tick, client := ticks.Add(1), w.client.Namespace(spaceOf(name))
	_, err := client.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"tick":%d}`, tick), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		obj := &unstructured.Unstructured{Object: map[string]any{"tick": tick}}
		obj.SetGroupVersionKind(w.kind)
		obj.SetName(name)
		_, _ = client.Create(ctx, obj, metav1.CreateOptions{})
	}
}

func nameOf(n int) string { return fmt.Sprint("w", n) }
