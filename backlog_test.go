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
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// flood is a source that delivers events as fast as they are read, and stores nothing.
type flood struct {
	objects int
	events  chan watch.Event
}

func newFlood(objects int) flood { return flood{objects, make(chan watch.Event)} }

// object returns version n of an object; n counts over all objects.
func (f flood) object(n int) configMap {
	name := fmt.Sprint("object-", n%f.objects)
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(1 + n),
	}}
}

func (f flood) List(metav1.ListOptions) (apiruntime.Object, error) {
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for n := range f.objects {
		list.Items = append(list.Items, *f.object(n))
	}
	return list, nil
}

func (f flood) Watch(metav1.ListOptions) (watch.Interface, error) {
	return watch.NewProxyWatcher(f.events), nil
}

func (flood) IsWatchListSemanticsUnSupported() bool { return true }

// update delivers the updates from..to-1.
func (f flood) update(from, to int) {
	for n := from; n < to; n++ {
		f.events <- watch.Event{Type: watch.Modified, Object: f.object(n)}
	}
}

// follower checks that the versions of each object rise, and that Old is the New of the event
// before. Unless gate is nil, the second call waits until that channel is closed.
type follower struct {
	t     *testing.T
	calls int
	known map[string]configMap
	gate  chan struct{}
}

// follow adds a new follower to inf.
func follow(t *testing.T, inf *ci, maxBacklog int, gate chan struct{}) (*follower, *informer.Registration) {
	t.Helper()
	f := &follower{t: t, known: map[string]configMap{}, gate: gate}
	return f, addWatcher(t, inf, informer.WatcherFunc[configMap](f.handle), informer.WatcherOptions{MaxBacklog: maxBacklog})
}

func (f *follower) handle(_ context.Context, e event) error {
	known := f.known[e.New.Name]
	if e.Old != known {
		f.t.Errorf("%s: Old has version %s and is not the New of the event before", e.New.Name, e.Old.GetResourceVersion())
	}
	if known != nil && number(e.New) <= number(known) {
		f.t.Errorf("%s: version %s comes after %s", e.New.Name, e.New.ResourceVersion, known.ResourceVersion)
	}
	f.known[e.New.Name] = e.New
	if f.calls++; f.calls == 2 && f.gate != nil {
		<-f.gate
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

// manyUpdates is a number of updates that would need much memory if each were kept.
func manyUpdates() int { return longOrShort(1_000_000, 20_000) }

// TestABlockedWatcherTakesLittleMemoryAndDelaysNoOther plays a case in which client-go needs
// 1282 MiB.
func TestABlockedWatcherTakesLittleMemoryAndDelaysNoOther(t *testing.T) {
	const objects, backlog, limit = 1000, 1024, 8 << 20
	updates := manyUpdates()
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := newFlood(objects)
		inf := newInformer(t, src, options{Queue: queue})
		gate := make(chan struct{})
		slow, blocked := follow(t, inf, backlog, gate)
		free, other := follow(t, inf, -1, nil)
		start(t, inf)
		<-other.Synced()
		before, begun := heap(), time.Now()
		src.update(objects, objects+updates)
		synctest.Wait()
		grown, took := heap()-before, time.Since(begun)

		s := blocked.Stats()
		t.Logf("%d updates, heap grown by %.2f MiB, stats of the blocked: %+v", updates, float64(grown)/(1<<20), s)
		testkit.AtMost(t, "bytes by which the heap has grown", grown, limit)
		if free.calls != objects+updates || took != 0 {
			t.Errorf("the other watcher got %d events, after %v", free.calls, took)
		}
		if s.Pending > backlog+2*objects+objects || s.Merged < updates-3*objects || s.Delivered != 1 {
			t.Errorf("stats of the blocked watcher: %+v", s)
		}
		equal(t, "all events of the blocked watcher", s.Pending+s.Merged+s.Delivered+s.Failed, objects+updates)
		close(gate)
		synctest.Wait()
		slow.checkEqual(inf)
		free.checkEqual(inf)
		if s := blocked.Stats(); s.Pending != 0 || !s.Synced || s.Delivered != slow.calls {
			t.Errorf("stats after the block: %+v, called %d times", s, slow.calls)
		}
	})
}

// A negative MaxBacklog, too, keeps every event.
func TestTheLargestMaxBacklogKeepsEveryEvent(t *testing.T) {
	const objects = 1000
	updates := manyUpdates()
	for _, maxBacklog := range []int{-1, math.MaxInt} {
		synctest.Test(t, func(t *testing.T) {
			src := newFlood(objects)
			inf := newInformer(t, src, options{})
			gate := make(chan struct{})
			slow, reg := follow(t, inf, maxBacklog, gate)
			start(t, inf)
			<-inf.Synced()
			src.update(objects, objects+updates)
			synctest.Wait()
			if s := reg.Stats(); s.Pending != objects+updates-1 {
				t.Errorf("MaxBacklog %d, while the watcher is blocked: %+v", maxBacklog, s)
			}
			close(gate)
			synctest.Wait()
			slow.checkEqual(inf)
			if s := reg.Stats(); slow.calls != objects+updates || s.Merged != 0 || s.Delivered != slow.calls {
				t.Errorf("MaxBacklog %d: called %d times for %d events: %+v", maxBacklog, slow.calls, objects+updates, s)
			}
		})
	}
}

func TestABacklogIsBoundedAndTheFirstStateDoesNotCount(t *testing.T) {
	const objects = 600
	for name, test := range map[string]struct {
		maxBacklog, limit int
		late              bool // the watcher is added while the informer runs
	}{
		"by default": {0, 10_000, true}, "of a late watcher": {300, 300, true}, "of an early watcher": {300, 300, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			src := newFlood(objects)
			inf := newInformer(t, src, options{})
			if test.late {
				informertest.Run(t, inf)
			}
			gate := make(chan struct{})
			slow, reg := follow(t, inf, test.maxBacklog, gate)
			if !test.late {
				start(t, inf)
			}
			synctest.Wait() // the second call waits now
			updateFirst := func(n int) { src.update(n*objects, n*objects+1) }
			for n := range test.limit {
				updateFirst(1 + n)
			}
			synctest.Wait()
			if s := reg.Stats(); s.Pending != objects-1+test.limit || s.Merged != 0 {
				t.Errorf("with a full backlog: %+v", s)
			}
			updateFirst(1 + test.limit)
			synctest.Wait()
			if s := reg.Stats(); s.Merged == 0 || s.Pending > objects+300 {
				t.Errorf("with one more event: %+v", s)
			}
			close(gate)
			synctest.Wait()
			slow.checkEqual(inf)
		})
	}
}

// unforgetful is a store whose Delete reports success but keeps the object.
type unforgetful struct{ *informertest.Store }

func (unforgetful) Delete(any) error { return nil }

func TestADeleteThatComesTwiceIsDeliveredOnceToALateWatcher(t *testing.T) {
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
