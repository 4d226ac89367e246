package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/internal/memory"
)

func storeSection(sz sizes) section {
	return section{
		name:     "store",
		title:    "The store",
		oneQueue: true,
		about: fmt.Sprintf("Our own store compared with client-go's indexer, without an informer. Each has %d Pods in 50 namespaces and on nodes of 20 Pods, ", sz.cached) +
			"and an index by namespace; where readers call ByIndex, also one by node. A write is an update of an object in an order that has nothing to do with the one of the memory. The new " +
			"object is in the processor's cache, as after decoding, and the old one is not. Its time is the processor time of the writing thread. Client-go makes the key of the object, and " +
			"our store is given the key, as in the informers of both sides. The next section shows how long events wait while readers list. " +
			"The queue plays no part, so both our columns show one figure.",
		cases: []measurement{
			writes("no reader", sz, 0, false, 1.2, 0),
			writes("1000 ByIndex of 20 objects a second", sz, 1000, true, 1.5, 0),
			writes("1 list a second", sz, 1, false, 4, 0),
			writes("10 lists a second", sz, 10, false, 6, 0),
			writes("100 lists a second", sz, 100, false, 8, 2500),
			reads(sz),
			{
				rows:    []row{{name: "store, heap per object, without the object", unit: "B", floor: floor{below: 100}}},
				measure: func(_ context.Context, s side) ([]float64, error) { return storeHeap(s, sz.cached) },
			},
		},
	}
}

// shelf is a store of a side with Pods.
type shelf struct {
	keys []string
	pods [2][]pod // two states of each
	next int      // the next write

	put     func(key string, p pod)
	list    func() int
	byIndex func(value string) int
	get     func(key string) bool
}

func newShelf(s side, n int, byNode bool) (*shelf, error) {
	h := &shelf{}
	for i := range n {
		h.keys = append(h.keys, fmt.Sprintf("ns-%d/pod-%06d", i%50, i))
		for state := range h.pods {
			p := newPod(i, 1+state, 0)
			p.Namespace, p.Spec.NodeName = fmt.Sprintf("ns-%d", i%50), nodeName(i%(n/20))
			h.pods[state] = append(h.pods[state], p)
		}
	}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if byNode {
		indexers["node"] = func(obj any) ([]string, error) { return []string{obj.(pod).Spec.NodeName}, nil }
	}
	if s == clientGo {
		x := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
		h.put = func(_ string, p pod) { _ = x.Update(p) }
		h.list = func() int { return len(x.List()) }
		h.byIndex = func(value string) int { found, _ := x.ByIndex("node", value); return len(found) }
		h.get = func(key string) bool { _, ok, _ := x.GetByKey(key); return ok }
		return h, nil
	}
	x, err := memory.New(indexers)
	if err != nil {
		return nil, err
	}
	part := x.Part("")
	h.put = func(key string, p pod) { part.Put(key, p) }
	h.list = func() int { return len(x.Snapshot().Entries().Objects()) }
	h.byIndex = func(value string) int {
		found, _ := x.Now().ByIndex("node", value)
		return len(found.Objects())
	}
	h.get = func(key string) bool { _, ok := part.Get(key); return ok }
	return h, nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// fill stores all objects.
func (h *shelf) fill() {
	for i, key := range h.keys {
		h.put(key, h.pods[0][i])
	}
}

// scattered is a prime, by which a walk through the objects jumps in memory.
const scattered = 7919

// change returns the next write.
func (h *shelf) change() (string, pod) {
	n := len(h.keys)
	i, state := h.next*scattered%n, (h.next/n+1)%2
	h.next++
	return h.keys[i], h.pods[state][i]
}

// writes returns a measurement of a write with readers that list, or call ByIndex, at a rate a second.
func writes(beside string, sz sizes, rate int, byIndex bool, microseconds, bytes float64) measurement {
	return measurement{
		rows: named("write, "+beside,
			row{unit: "ns", floor: floor{below: microseconds * 1000}},
			row{name: ", allocated with the readers", unit: "B", plain: true, floor: floor{below: bytes}}),
		measure: func(_ context.Context, s side) ([]float64, error) {
			h, err := newShelf(s, sz.cached, byIndex)
			if err != nil {
				return nil, err
			}
			h.fill()
			runtime.LockOSThread() // threadTime needs it
			defer runtime.UnlockOSThread()
			var reading sync.WaitGroup
			var stop atomic.Bool
			if rate > 0 {
				reading.Go(func() {
					tick := time.NewTicker(time.Second / time.Duration(rate))
					defer tick.Stop()
					for n := 0; !stop.Load(); n++ {
						if byIndex {
							h.byIndex(nodeName(n % (sz.cached / 20)))
						} else {
							h.list()
						}
						<-tick.C
					}
				})
			}
			var took time.Duration
			count, before := 0, lab.Bytes("/gc/heap/allocs:bytes")
			for begun := restart(); count == 0 || time.Since(begun) < sz.writing; count += batch {
				took += h.writeBatch()
			}
			allocated := lab.Bytes("/gc/heap/allocs:bytes") - before
			stop.Store(true)
			reading.Wait()
			return []float64{nanoseconds(took) / float64(count), allocated / float64(count)}, nil
		},
	}
}

const batch = 256

// writeBatch returns the processor time of some writes.
func (h *shelf) writeBatch() time.Duration {
	var keys [batch]string
	var pods [batch]pod
	warm := 0
	for i := range batch {
		keys[i], pods[i] = h.change()
		p := pods[i]
		warm += int(keys[i][0]) + int(p.Name[0]) + int(p.Namespace[0]) + len(p.Spec.NodeName) + len(p.Labels)
	}
	begun := threadTime()
	for i := range batch {
		h.put(keys[i], pods[i])
	}
	took := threadTime() - begun
	runtime.KeepAlive(warm)
	return took
}

// reads returns a measurement of reads without a writer.
func reads(sz sizes) measurement {
	return measurement{
		rows: []row{
			{name: "store, Get", unit: "ns"}, {name: "store, ByIndex of 20 objects", unit: "ns"},
			{name: "store, list, per object", unit: "ns"},
		},
		measure: func(_ context.Context, s side) ([]float64, error) {
			h, err := newShelf(s, sz.cached, true)
			if err != nil {
				return nil, err
			}
			h.fill()
			begun := restart()
			each := func(n int) float64 {
				took := time.Since(begun)
				begun = time.Now()
				return nanoseconds(took) / float64(n)
			}
			for i := range sz.cached {
				h.get(h.keys[i*scattered%sz.cached])
			}
			get := each(sz.cached)
			for i := range sz.cached / 20 {
				h.byIndex(nodeName(i * scattered % (sz.cached / 20)))
			}
			byIndex := each(sz.cached / 20)
			const lists = 10
			for range lists {
				h.list()
			}
			return []float64{get, byIndex, each(lists * sz.cached)}, nil
		},
	}
}

// storeHeap returns the bytes of an object with its key and its index values, without the object itself.
func storeHeap(s side, n int) ([]float64, error) {
	h, err := newShelf(s, n, false)
	if err != nil {
		return nil, err
	}
	h.keys = nil // each side keeps keys of its own
	before, _ := lab.Settled()
	for i, p := range h.pods[0] {
		h.put(fmt.Sprintf("ns-%d/pod-%06d", i%50, i), p)
	}
	after, _ := lab.Settled()
	runtime.KeepAlive(h)
	return []float64{(after - before) / float64(n)}, nil
}
