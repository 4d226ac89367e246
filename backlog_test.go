package informer_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// flood is a source that delivers events as fast as they are read, and stores nothing.
type flood struct {
	names  []string
	events chan watch.Event
}

func newFlood(objects int) *flood {
	f := &flood{events: make(chan watch.Event)}
	for n := range objects {
		f.names = append(f.names, fmt.Sprint("object-", n))
	}
	return f
}

// object returns version n of an object; n counts over all objects.
func (f *flood) object(n int) configMap {
	name := f.names[n%len(f.names)]
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(1 + n),
	}}
}

func (f *flood) List(metav1.ListOptions) (apiruntime.Object, error) {
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for n := range f.names {
		list.Items = append(list.Items, *f.object(n))
	}
	return list, nil
}

func (f *flood) Watch(metav1.ListOptions) (watch.Interface, error) {
	return watch.NewProxyWatcher(f.events), nil
}

func (f *flood) IsWatchListSemanticsUnSupported() bool { return true }

// update delivers the updates from..to-1.
func (f *flood) update(from, to int) {
	for n := from; n < to; n++ {
		f.events <- watch.Event{Type: watch.Modified, Object: f.object(n)}
	}
}

// follower checks that the versions of each object rise, and that Old is the New of the event
// before. If blocked is set, the second call waits until that channel is closed.
type follower struct {
	t       *testing.T
	calls   int
	known   map[string]configMap
	blocked chan struct{}
}

func newFollower(t *testing.T) *follower { return &follower{t: t, known: map[string]configMap{}} }

func (f *follower) handle(_ context.Context, e event) error {
	known := f.known[e.New.Name]
	if e.Old != known {
		f.t.Errorf("%s: Old has version %s and is not the New of the event before", e.New.Name, e.Old.GetResourceVersion())
	}
	if known != nil && number(e.New) <= number(known) {
		f.t.Errorf("%s: version %s comes after %s", e.New.Name, e.New.ResourceVersion, known.ResourceVersion)
	}
	f.known[e.New.Name] = e.New
	if f.calls++; f.calls == 2 && f.blocked != nil {
		<-f.blocked
	}
	return nil
}

func number(obj configMap) int {
	n, _ := strconv.Atoi(obj.ResourceVersion)
	return n
}

func (f *follower) checkEqual(inf *ci) {
	f.t.Helper()
	for key, obj := range inf.All() {
		if f.known[key.Name] != obj {
			f.t.Errorf("%s: ended with version %s, the store has %s", key.Name, f.known[key.Name].GetResourceVersion(), obj.ResourceVersion)
		}
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestABlockedWatcherTakesLittleMemoryAndDelaysNobody plays a case in which client-go needs
// 1282 MiB.
func TestABlockedWatcherTakesLittleMemoryAndDelaysNobody(t *testing.T) {
	const objects, backlog, limit = 1000, 1024, 8 << 20
	updates := 1_000_000
	if testing.Short() {
		updates = 20_000
	}
	for name, queue := range queues {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := newFlood(objects)
				inf := newInformer(t, src, options{Queue: queue})
				slow, free := newFollower(t), newFollower(t)
				slow.blocked = make(chan struct{})
				blocked := addWatcher(t, inf, informer.WatcherFunc[configMap](slow.handle), informer.WatcherOptions{MaxBacklog: backlog})
				other := addWatcher(t, inf, informer.WatcherFunc[configMap](free.handle), informer.WatcherOptions{MaxBacklog: -1})
				start(t, inf)
				<-other.Synced()
				before, begun := heap(), time.Now()
				src.update(objects, objects+updates)
				synctest.Wait()
				grown, took := heap()-before, time.Since(begun)

				t.Logf("%d updates, heap grown by %.2f MiB, stats of the blocked: %+v", updates, float64(grown)/(1<<20), blocked.Stats())
				if grown > limit {
					t.Errorf("the heap has grown by %d bytes", grown)
				}
				if free.calls != objects+updates || took != 0 {
					t.Errorf("the other watcher got %d events, after %v", free.calls, took)
				}
				s := blocked.Stats()
				if s.Pending > backlog+2*objects+objects || s.Merged < updates-3*objects || s.Delivered != 1 {
					t.Errorf("stats of the blocked watcher: %+v", s)
				}
				if sum := s.Pending + s.Merged + s.Delivered + s.Failed; sum != objects+updates {
					t.Errorf("the stats of the blocked watcher add up to %d events", sum)
				}
				close(slow.blocked)
				synctest.Wait()
				slow.checkEqual(inf)
				free.checkEqual(inf)
				if s := blocked.Stats(); s.Pending != 0 || !s.Synced || s.Delivered != slow.calls {
					t.Errorf("stats after the block: %+v, called %d times", s, slow.calls)
				}
			})
		})
	}
}

func TestANegativeMaxBacklogKeepsEveryEvent(t *testing.T) {
	const objects = 1000
	updates := 1_000_000
	if testing.Short() {
		updates = 20_000
	}
	synctest.Test(t, func(t *testing.T) {
		src := newFlood(objects)
		inf := newInformer(t, src, options{})
		slow := newFollower(t)
		slow.blocked = make(chan struct{})
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](slow.handle), informer.WatcherOptions{MaxBacklog: -1})
		start(t, inf)
		<-inf.Synced()
		src.update(objects, objects+updates)
		synctest.Wait()
		if s := reg.Stats(); s.Pending != objects+updates-1 {
			t.Errorf("while the watcher is blocked: %+v", s)
		}
		close(slow.blocked)
		synctest.Wait()
		slow.checkEqual(inf)
		if s := reg.Stats(); slow.calls != objects+updates || s.Merged != 0 || s.Delivered != slow.calls {
			t.Errorf("called %d times for %d events: %+v", slow.calls, objects+updates, s)
		}
	})
}

func TestTheDefaultBacklogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newFlood(1)
		inf := newInformer(t, src, options{})
		slow := newFollower(t)
		slow.blocked = make(chan struct{})
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](slow.handle), informer.WatcherOptions{})
		start(t, inf)
		<-inf.Synced()
		const maxBacklog = 10_000 // by default
		src.update(1, 2)
		synctest.Wait() // the second call waits now
		src.update(2, 2+maxBacklog)
		synctest.Wait()
		if s := reg.Stats(); s.Pending != 1+maxBacklog || s.Merged != 0 {
			t.Errorf("with a full backlog: %+v", s)
		}
		src.update(2+maxBacklog, 3+maxBacklog)
		synctest.Wait()
		if s := reg.Stats(); s.Merged == 0 || s.Pending > 300 {
			t.Errorf("with one more event: %+v", s)
		}
		close(slow.blocked)
		synctest.Wait()
		slow.checkEqual(inf)
	})
}

func TestTheStateAWatcherIsToldDoesNotCountForItsBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects, backlog = 600, 300
		src := newFlood(objects)
		inf := newInformer(t, src, options{})
		informertest.Run(t, inf)
		slow := newFollower(t)
		slow.blocked = make(chan struct{})
		reg := addWatcher(t, inf, informer.WatcherFunc[configMap](slow.handle), informer.WatcherOptions{MaxBacklog: backlog})
		synctest.Wait() // the second call waits now
		for n := range backlog {
			src.update((n+1)*objects, (n+1)*objects+1) // updates of the first object
		}
		synctest.Wait()
		if s := reg.Stats(); s.Pending != objects+backlog-1 || s.Merged != 0 {
			t.Errorf("with a full backlog: %+v", s)
		}
		src.update((backlog+1)*objects, (backlog+1)*objects+1)
		synctest.Wait()
		if s := reg.Stats(); s.Merged == 0 {
			t.Errorf("with one more event: %+v", s)
		}
		close(slow.blocked)
		synctest.Wait()
		slow.checkEqual(inf)
	})
}

// TestADeletedAndCreatedObjectShowsBothEvents sends the events through the backlog of a
// blocked watcher. The same backlog holds events of an object that is deleted before
// the watcher gets its add.
func TestADeletedAndCreatedObjectShowsBothEvents(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		var r recorder
		gate := make(chan struct{})
		r.Hook = func(_ context.Context, e event) error {
			if e.Key() == keyOf("gate") {
				<-gate
			}
			return nil
		}
		reg := addWatcher(t, inf, &r, informer.WatcherOptions{MaxBacklog: 1})
		informertest.Run(t, inf)
		r.Expect(t, "added default/a", "added default/b")
		src.Apply(object("gate", ""))
		synctest.Wait()
		for n := range 50 {
			src.Apply(object("a", fmt.Sprint(n)))
			src.Apply(object("never", fmt.Sprint(n)))
			synctest.Wait()
		}
		_, _ = src.Delete(keyOf("a"))
		_, _ = src.Delete(keyOf("never"))
		src.Apply(object("a", "again"))
		_, _ = src.Delete(keyOf("b"))
		synctest.Wait()
		if pending := reg.Stats().Pending; pending > 1+1+2*3 {
			t.Errorf("%d events wait", pending)
		}
		close(gate)
		synctest.Wait()
		checkView(t, &r, src)
		if kinds := kindsOf(r.Events(), "a"); kinds != "added updated deleted added" && kinds != "added deleted added" {
			t.Errorf("events of an object that was created again: %s", kinds)
		}
		if kinds := kindsOf(r.Events(), "b"); kinds != "added deleted" {
			t.Errorf("events of a deleted object: %s", kinds)
		}
	})
}

func kindsOf(events []event, name string) string {
	var kinds string
	for _, e := range events {
		if e.Key().Name == name {
			kinds += " " + e.Type.String()
		}
	}
	return kinds[min(1, len(kinds)):]
}

// unforgetful is a store whose Delete reports success but keeps the object.
type unforgetful struct{ *informertest.Store }

func (unforgetful) Delete(any) error { return nil }

func TestADeleteThatComesTwiceIsToldOnceToWhoIsBehind(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue, Store: unforgetful{informertest.NewStore(nil)}})
		hold := make(chan struct{})
		r := &recorder{Hook: func(context.Context, event) error { <-hold; return nil }}
		reg := addWatcher(t, inf, r, informer.WatcherOptions{MaxBacklog: 1})
		start(t, inf)
		<-inf.Synced()
		opened(t, src)
		synctest.Wait() // the watcher is in its first call, so that both deletes wait behind it
		gone, _ := src.Delete(keyOf("a"))
		synctest.Wait()
		src.Inject(watch.Event{Type: watch.Deleted, Object: gone})
		synctest.Wait()
		if got := reg.Stats(); got.Merged != 1 || got.Pending != 2 {
			t.Errorf("during the first call: %+v", got)
		}
		close(hold)
		r.Expect(t, "added default/a", "deleted default/a")
		synctest.Wait()
		r.Expect(t)
	})
}

func TestTheLargestMaxBacklogKeepsEveryEvent(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "first"))
		inf := newInformer(t, src, options{Queue: queue})
		hold := make(chan struct{})
		r := &recorder{Hook: func(context.Context, event) error { <-hold; return nil }}
		reg := addWatcher(t, inf, r, informer.WatcherOptions{MaxBacklog: math.MaxInt})
		start(t, inf)
		<-inf.Synced()
		opened(t, src)
		synctest.Wait()
		for n := range 1000 {
			src.Apply(object("a", fmt.Sprint(n)))
			synctest.Wait()
		}
		if got := reg.Stats(); got.Pending != 1001 || got.Merged != 0 {
			t.Errorf("while the watcher is blocked: %+v", got)
		}
		close(hold)
		synctest.Wait()
		if n := len(r.Events()); n != 1001 {
			t.Errorf("%d events", n)
		}
	})
}
