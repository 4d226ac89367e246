package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
)

// namespaceWatchers is the number of watchers of all namespaces.
const namespaceWatchers = 10

func namespacesSection(sz sizes) section {
	s := section{
		name:  "namespaces",
		title: "Several namespaces",
		about: fmt.Sprintf("The Pods of some namespaces, for a program that may not read all of them: with client-go an informer and a handler for each namespace and watcher, with "+
			"this library one informer of NewInNamespaces and a registration for each of the %d watchers. There are %d Pods in all. The lists are made before and given away. Memory is the heap and the stacks that are live "+
			"after the sync, without the Pods. Last, three watchers are called for a namespace with an event a millisecond, next to another one, which tries to send %d.", namespaceWatchers, sz.cached, floodRate),
	}
	for _, namespaces := range []int{3, 100} {
		s.cases = append(s.cases, measurement{
			rows: named(fmt.Sprintf("%d namespaces, ", namespaces),
				row{name: "time until all watchers have synced", unit: "ms"}, row{name: "requests", plain: true}, row{name: "memory", unit: "MiB"}),
			measure: func(ctx context.Context, s side) ([]float64, error) {
				return manyNamespaces(ctx, s, namespaces, sz.cached/namespaces)
			},
		})
	}
	s.cases = append(s.cases, floodMeasurement(sz))
	return s
}

// namespacePods is the client for the Pods of a namespace. It counts requests.
type namespacePods struct {
	cache.ListerWatcherWithContext
	requests *atomic.Int64
}

func (c namespacePods) List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	c.requests.Add(1)
	list, err := c.ListWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	return list.(*corev1.PodList), nil
}

func (c namespacePods) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents == nil { // the source refuses to stream
		c.requests.Add(1)
	}
	return c.WatchWithContext(ctx, opts)
}

func sourceIn(namespace string, n int) *source {
	s := newSource(n)
	list := <-s.list
	for i := range list.Items {
		list.Items[i].Namespace = namespace
	}
	s.list <- list
	return s
}

// overNamespaces returns the informers of a side over some namespaces.
func overNamespaces(s side, sources map[string]*source, requests *atomic.Int64) (informers []subject[pod], err error) {
	client := func(namespace string) namespacePods {
		return namespacePods{cache.ToListerWatcherWithContext(sources[namespace].listWatch()), requests}
	}
	names := slices.Sorted(maps.Keys(sources))
	if s == clientGo {
		for _, name := range names {
			informers = append(informers, newShared[pod](informer.ListWatch(client(name))))
		}
		return informers, nil
	}
	inf, err := informer.NewInNamespaces(client, names, informer.Options[pod]{Queue: s.queue})
	return []subject[pod]{custom[pod]{inf}}, err
}

func manyNamespaces(ctx context.Context, s side, namespaces, objects int) (values []float64, err error) {
	var requests atomic.Int64
	sources := map[string]*source{}
	for i := range namespaces {
		name := fmt.Sprint("namespace-", i)
		sources[name] = sourceIn(name, objects)
	}
	informers, err := overNamespaces(s, sources, &requests)
	if err != nil {
		return nil, err
	}
	handled, told := newTally(namespaceWatchers*len(informers)), objects*namespaces/len(informers)
	for _, inf := range informers {
		if _, err := addAll(inf, namespaceWatchers, informer.WatcherOptions{}, func(int) func(pod) { return count[pod](handled, told) }); err != nil {
			return nil, err
		}
	}
	heapBefore, stacksBefore := lab.Settled()
	begin := time.Now()
	for _, inf := range informers {
		running := start(inf.run)
		defer running.stop(&err)
	}
	if err := handled.wait(ctx); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	heap, stacks := lab.Settled()
	return []float64{milliseconds(took), float64(requests.Load()), (heap - heapBefore + stacks - stacksBefore) / lab.MiB}, nil
}

// floodRate is how many events a namespace that floods tries to send in a millisecond.
const floodRate = 100

func floodMeasurement(sz sizes) measurement {
	return measurement{
		rows: append(named("an event a ms in a namespace, p99",
			row{unit: "µs", common: true},
			row{name: ", with an unread flood", unit: "µs", common: true},
			row{name: ", with a flood in another namespace", unit: "µs", common: true}),
			row{name: "the last in the one before", unit: "times", common: true},
			row{name: "handled events of the flood", unit: "a ms", plain: true}),
		measure: func(ctx context.Context, s side) ([]float64, error) {
			alone, _, err := besideFlood(ctx, s, sz.ticks, 0, false)
			if err != nil {
				return nil, err
			}
			unread, _, err := besideFlood(ctx, s, sz.ticks, floodRate, false)
			if err != nil {
				return nil, err
			}
			flooded, rate, err := besideFlood(ctx, s, sz.ticks, floodRate, true)
			return []float64{alone, unread, flooded, flooded / unread, rate}, err
		},
	}
}

// besideFlood returns the 99th percentile of the time from when an event of a quiet namespace is due until it is handled, in
// microseconds, and how many events of another namespace were handled in a millisecond meanwhile. Its events are
// sent also if they are not read: that takes time of the processors, too.
func besideFlood(ctx context.Context, s side, ticks, rate int, read bool) (p99, handled float64, err error) {
	const watchers = 3
	quiet, flood := sourceIn("quiet", watchers), sourceIn("flood", streamed)
	sources := map[string]*source{"quiet": quiet}
	if read {
		sources["flood"] = flood
	}
	informers, err := overNamespaces(s, sources, new(atomic.Int64))
	if err != nil {
		return 0, 0, err
	}
	var floods atomic.Int64
	t := newTrickle(watchers, 1, ticks)
	for _, inf := range informers {
		synced, err := addAll(inf, watchers, everyEvent, func(i int) func(pod) {
			count := t.handler(i)
			return func(p pod) {
				if p.Namespace == "quiet" {
					count(p)
				} else if i == 0 && p.Generation >= 0 {
					floods.Add(1)
				}
			}
		})
		if err != nil {
			return 0, 0, err
		}
		running := start(inf.run)
		defer running.stop(&err)
		if err := synced(ctx); err != nil {
			return 0, 0, err
		}
	}
	send := func(t *trickle, until context.Context, src *source, namespace string, objects int) error {
		return t.send(ctx, until, src, func(place int) watch.Event {
			e := update(objects, place)
			e.Object.(pod).Namespace = namespace
			return e
		})
	}
	flooding, stop := context.WithCancel(ctx)
	defer stop()
	if !read {
		defer close(flood.events)
		go func() {
			for range flood.events {
			}
		}()
	}
	flooded := make(chan error, 1)
	go func() { flooded <- send(newTrickle(0, rate, unlimited), flooding, flood, "flood", streamed) }()
	restart()
	begun := time.Now()
	sent := send(t, ctx, quiet, "quiet", watchers)
	took := time.Since(begun)
	stop()
	if err := errors.Join(sent, <-flooded, t.wait(ctx)); err != nil {
		return 0, 0, err
	}
	return t.quantiles(0.99)[0], float64(floods.Load()) / milliseconds(took), nil
}
