package informer

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/index"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// TestDistributingAllocatesNothingButTheLog has two watchers: one keeps up, one is blocked.
func TestDistributingAllocatesNothingButTheLog(t *testing.T) {
	const chunks = 50
	d := newDistribution()
	block := make(chan struct{})
	for _, call := range []WatcherFunc[pod]{
		func(context.Context, Event[pod]) error { return nil },
		func(context.Context, Event[pod]) error { <-block; return nil },
	} {
		if _, err := d.add(call, WatcherOptions{MaxBacklog: -1}); err != nil {
			t.Fatal(err)
		}
	}
	d.begin()
	defer d.end()
	defer close(block)
	one := d.updates(maxChunk)
	got := testing.AllocsPerRun(10, func() {
		for n := range chunks * maxChunk {
			d.distribute(one[n%maxChunk:n%maxChunk+1], "")
		}
	})
	// A chunk of the log takes two allocations. The runtime adds some for sleeping goroutines.
	if most := float64(2*chunks + 10); got > most {
		t.Errorf("%d events cost %v allocations, more than %v", chunks*maxChunk, got, most)
	}
}

// distribution is a processor without the other parts of an informer.
type distribution struct {
	*informerProcessor[pod]
	ctx  context.Context
	stop context.CancelFunc
}

func newDistribution() *distribution {
	opts := Options[pod]{}.withDefaults()
	d := &distribution{informerProcessor: newProcessor(index.NewScan(cache.NewStore(cache.MetaNamespaceKeyFunc)), nil, stopwatch.New(), false, opts)}
	close(d.filled)
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

func (d *distribution) begin() {
	d.start(d.ctx)
	<-d.startedCh
}

func (d *distribution) end() {
	d.informerProcessor.stop()
	d.stop()
	d.run(d.ctx)
}

func (d *distribution) updates(n int) []record[pod] {
	records := make([]record[pod], n)
	for i := range records {
		obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i)}}
		records[i] = record[pod]{key: object.Key(obj), event: Event[pod]{Old: obj, New: obj, Type: EventUpdated}}
	}
	return records
}

// BenchmarkDistribution measures the distribution alone, without a source, a queue or a store:
// one goroutine distributes changes, one at a time, to many watchers that count them.
// client-go's distribution is called as its own controller calls it.
func BenchmarkDistribution(b *testing.B) {
	for _, watchers := range []int{1, 10, 100, 1000} {
		run := func(side string, distribute func(*testing.B, int)) {
			b.Run(fmt.Sprintf("%s/%d", side, watchers), func(b *testing.B) { distribute(b, watchers) })
		}
		run("client-go", distributeShared)
		run("informer", func(b *testing.B, watchers int) {
			distributeTo(b, watchers, func(c *counter) ResourceWatcher[pod] {
				return WatcherFuncs[pod]{UpdateFunc: func(context.Context, Event[pod]) error { c.count(); return nil }}
			})
		})
		run("informer, client-go's handlers", func(b *testing.B, watchers int) {
			distributeTo(b, watchers, func(c *counter) ResourceWatcher[pod] { return &handler[pod]{ResourceEventHandler: c.handler()} })
		})
	}
}

func distributeTo(b *testing.B, watchers int, watcher func(*counter) ResourceWatcher[pod]) {
	d := newDistribution()
	told := newTold(b, watchers, func(c *counter) error {
		_, err := d.add(watcher(c), WatcherOptions{MaxBacklog: -1})
		return err
	})
	d.begin()
	defer d.end()
	records := d.updates(1000)
	told.measure(b, func(n int) { d.distribute(records[n%1000:n%1000+1], "") })
}

func distributeShared(b *testing.B, watchers int) {
	inf := cache.NewSharedIndexInformer(podsInList(&corev1.PodList{}), &corev1.Pod{}, 0, cache.Indexers{})
	told := newTold(b, watchers, func(c *counter) error {
		_, err := inf.AddEventHandler(c.handler())
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { inf.RunWithContext(ctx) })
	<-inf.HasSyncedChecker().Done()
	obj := &corev1.Pod{}
	controller := inf.(cache.ResourceEventHandler)
	told.measure(b, func(int) { controller.OnUpdate(obj, obj) })
}

// podsInList returns a source that returns list, and cannot stream it. Its watches have no events.
func podsInList(list *corev1.PodList) cache.ListerWatcher {
	list.ResourceVersion = "1"
	return withoutStreams{&cache.ListWatch{
		ListFunc:  func(metav1.ListOptions) (runtime.Object, error) { return list, nil },
		WatchFunc: func(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}}
}

// withoutStreams is a source that cannot stream the initial state.
type withoutStreams struct{ *cache.ListWatch }

func (withoutStreams) IsWatchListSemanticsUnSupported() bool { return true }

// told waits until all watchers have handled their events.
type told struct {
	watchers int
	all      sync.WaitGroup
}

// newTold adds watchers that each expect b.N events.
func newTold(b *testing.B, watchers int, add func(*counter) error) *told {
	t := &told{watchers: watchers}
	t.all.Add(watchers)
	for range watchers {
		if err := add(&counter{left: b.N, all: &t.all}); err != nil {
			b.Fatal(err)
		}
	}
	return t
}

// counter counts the events that one watcher handles.
type counter struct {
	left int
	all  *sync.WaitGroup
	_    [112]byte // keeps other counters out of the cache line
}

func (c *counter) count() {
	if c.left--; c.left == 0 {
		c.all.Done()
	}
}

func (c *counter) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { c.count() }}
}

// measure distributes b.N events and waits until all watchers have handled them.
func (t *told) measure(b *testing.B, distribute func(n int)) {
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	b.ResetTimer()
	for n := range b.N {
		distribute(n)
	}
	distributing := b.Elapsed()
	t.all.Wait()
	b.StopTimer()
	goruntime.ReadMemStats(&after)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/event")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*t.watchers), "ns/event/watcher")
	b.ReportMetric(float64(distributing.Nanoseconds())/float64(b.N), "distributing-ns/event")
}

func TestTheMemoryOfALargeListIsReleased(t *testing.T) {
	list := &corev1.PodList{Items: make([]corev1.Pod, 5*gateBound)}
	for i := range list.Items {
		list.Items[i].Name = fmt.Sprint(i)
	}
	inf, err := NewFrom(podsInList(list), Options[pod]{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := inf.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-inf.Synced()
	cancel()
	running.Wait()
	a := inf.applier
	largest := max(cap(a.popped), cap(a.finished), cap(a.records), cap(a.infos), cap(a.storage.(*ownStore[pod]).changes))
	if n := len(inf.own.Snapshot().Entries().Objects()); n != len(list.Items) || largest > 2*gateBound {
		t.Errorf("after a list of %d objects there is still room for %d", n, largest)
	}
}
