package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
)

// namespaceWatchers is the number of watchers that are told of all namespaces.
const namespaceWatchers = 10

func namespacesSection(sz sizes) section {
	s := section{
		name:  "namespaces",
		title: "Several namespaces",
		about: fmt.Sprintf("The Pods of some namespaces, for a program that may not read all of them: with client-go an informer and a handler for each namespace and watcher, with "+
			"this library one informer of NewInNamespaces and a registration for each of the %d watchers. There are %d Pods in all. The lists are made before and given away. Memory is the heap and the stacks that are live "+
			"after the sync, without the Pods.", namespaceWatchers, sz.cached),
	}
	for _, namespaces := range []int{3, 100} {
		in := fmt.Sprintf("%d namespaces, ", namespaces)
		s.cases = append(s.cases, measurement{
			rows: []row{
				{name: in + "time until all watchers have synced", unit: "ms"},
				{name: in + "requests", plain: true},
				{name: in + "memory", unit: "MiB"},
			},
			measure: func(ctx context.Context, s side) ([]float64, error) {
				return manyNamespaces(ctx, s, namespaces, sz.cached/namespaces)
			},
		})
	}
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

func manyNamespaces(ctx context.Context, s side, namespaces, objects int) (values []float64, err error) {
	var names []string
	var requests atomic.Int64
	clients := map[string]namespacePods{}
	for i := range namespaces {
		name := fmt.Sprint("namespace-", i)
		names = append(names, name)
		clients[name] = namespacePods{cache.ToListerWatcherWithContext(sourceIn(name, objects).listWatch()), &requests}
	}
	client := func(namespace string) namespacePods { return clients[namespace] }
	var informers []subject[pod]
	if s == clientGo {
		for _, name := range names {
			informers = append(informers, newShared[pod](informer.ListWatch(client(name))))
		}
	} else {
		inf, err := informer.NewInNamespaces(client, names, informer.Options[pod]{Queue: s.queue})
		if err != nil {
			return nil, err
		}
		informers = append(informers, custom[pod]{inf})
	}
	var tallies []*tally
	for _, inf := range informers {
		handled := newTally(namespaceWatchers)
		told := objects * namespaces / len(informers)
		if _, err := addAll(inf, namespaceWatchers, informer.WatcherOptions{}, func(int) func(pod) { return count[pod](handled, told) }); err != nil {
			return nil, err
		}
		tallies = append(tallies, handled)
	}
	heapBefore, stacksBefore := lab.Settled()
	begin := time.Now()
	for _, inf := range informers {
		running := start(inf.run)
		defer running.stop(&err)
	}
	for _, handled := range tallies {
		if err := handled.wait(ctx); err != nil {
			return nil, err
		}
	}
	took := time.Since(begin)
	heap, stacks := lab.Settled()
	return []float64{milliseconds(took), float64(requests.Load()), (heap - heapBefore + stacks - stacksBefore) / lab.MiB}, nil
}
