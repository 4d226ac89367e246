package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
)

// fleet is the argument of a process that reads many clusters.
type fleet struct {
	Queue    informer.QueueKind // 0 for client-go
	Clusters int
	Objects  int      // in each cluster
	URLs     []string // of the clusters; none if they are in memory
	CA       []byte   // of their certificates
	Rest     time.Duration
}

// fleetCost is what that takes. The counts are what the clusters have added, and the memory is live after the sync.
type fleetCost struct {
	Goroutines, Files  int
	Stacks, Heap, Bare float64       // Bare is the heap without the objects
	Wall, CPU          time.Duration // until all have synced
	Rest               time.Duration // CPU time while nothing happens
}

func clustersSection(sz sizes) section {
	canned := newCannedServer(sz)
	s := section{
		name:  "clusters",
		title: "Many clusters",
		about: fmt.Sprintf("The Pods of many clusters. client-go has an informer and a handler for each cluster, and this library an informer over clusters with one watcher. Each measurement is a process of its own. "+
			"In memory, a cluster has %s small Pods, in a list that is made before and given away. One informer with all is one of the same side that reads as many Pods from one source. "+
			"Over TLS, each cluster is a listener of the canned API server in another process, with %d such Pods, and has a client and a transport of its own, because real clusters have certificates of their own; our side has informer.Transport. "+
			"Memory is what is live after the sync, so over TLS it has the clients and connections, too. CPU at rest is that of the process in %v in which nothing happens, %v after the sync and a collection.",
			lab.Thousands(sz.clusterPods), sz.remotePods, sz.rest, sz.rest/5),
	}
	s.cases = append(s.cases, measurement{
		rows: named(fmt.Sprintf("%s clusters in memory: ", lab.Thousands(sz.clusters)),
			row{name: "goroutines a cluster", floor: floor{below: 3.1}},
			row{name: "stacks a cluster", unit: "B"},
			row{name: "heap per object", unit: "B"},
			row{name: "heap per object, without the object", unit: "B"},
			row{name: "heap per object ÷ that of one informer with all", unit: "times", floor: floor{below: 1.1}},
			row{name: "time until all have synced", unit: "ms"},
			row{name: "time until all have synced ÷ that of one informer with all", unit: "times"},
			row{name: "CPU until then", unit: "ms"},
			row{name: "CPU at rest", unit: "µs/s", plain: true}),
		measure: func(ctx context.Context, side side) ([]float64, error) {
			f := fleet{Queue: side.queue, Clusters: sz.clusters, Objects: sz.clusterPods, Rest: sz.rest}
			n := float64(f.Clusters * f.Objects)
			var many, one fleetCost
			if err := lab.Measure(ctx, "clustering", f, &many); err != nil {
				return nil, err
			}
			f.Clusters, f.Objects, f.Rest = 1, f.Clusters*f.Objects, 0
			if err := lab.Measure(ctx, "clustering", f, &one); err != nil {
				return nil, err
			}
			each := float64(sz.clusters)
			return []float64{float64(many.Goroutines) / each, many.Stacks / each, many.Heap / n, many.Bare / n, many.Heap / one.Heap,
				milliseconds(many.Wall), float64(many.Wall) / float64(one.Wall), milliseconds(many.CPU), microseconds(many.Rest) / sz.rest.Seconds()}, nil
		},
	})
	s.cases = append(s.cases, measurement{
		rows: named(fmt.Sprintf("%d clusters over TLS: ", sz.remotes),
			row{name: "goroutines a cluster", floor: atMost(0.6)},
			row{name: "stacks a cluster", unit: "B", floor: atMost(0.6)},
			row{name: "heap a cluster", unit: "B"},
			row{name: "heap a cluster, without the objects", unit: "B", floor: atMost(0.6)},
			row{name: "open files a cluster", plain: true},
			row{name: "time until all have synced", unit: "ms"},
			row{name: "CPU until then", unit: "ms"},
			row{name: "CPU at rest", unit: "µs/s", plain: true}),
		measure: func(ctx context.Context, side side) ([]float64, error) {
			f := fleet{Queue: side.queue, Clusters: sz.remotes, Objects: sz.remotePods, Rest: sz.rest}
			for range f.Clusters {
				srv := canned.start()
				defer srv.Close()
				f.URLs = append(f.URLs, srv.URL+"/small")
				f.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
			}
			var cost fleetCost
			if err := lab.Measure(ctx, "clustering", f, &cost); err != nil {
				return nil, err
			}
			each := float64(f.Clusters)
			return []float64{float64(cost.Goroutines) / each, cost.Stacks / each, cost.Heap / each, cost.Bare / each, float64(cost.Files) / each,
				milliseconds(cost.Wall), milliseconds(cost.CPU), microseconds(cost.Rest) / sz.rest.Seconds()}, nil
		},
	})
	return s
}

func (f fleet) measure() (cost fleetCost, err error) {
	heap, stacks := lab.Settled()
	goroutines, files := runtime.NumGoroutine(), openFiles()
	informers, objects, err := f.open()
	if err != nil {
		return cost, err
	}
	handled := newTally(len(informers))
	for _, inf := range informers {
		if _, err := inf.add(count[pod](handled, f.Clusters*f.Objects/len(informers)), informer.WatcherOptions{}); err != nil {
			return cost, err
		}
	}
	begun, cpu := restart(), lab.CPU()
	for _, inf := range informers {
		running := start(inf.run)
		defer running.stop(&err)
	}
	if err := handled.wait(context.Background()); err != nil {
		return cost, err
	}
	cost.Wall, cost.CPU = time.Since(begun), lab.CPU()-cpu
	after, grown := lab.Settled()
	cost.Heap, cost.Stacks, cost.Bare = after-heap, grown-stacks, after-heap-objects
	cost.Goroutines, cost.Files = runtime.NumGoroutine()-goroutines, openFiles()-files
	lab.Returned()         // otherwise the runtime would do that while nothing happens
	time.Sleep(f.Rest / 5) // until the watches count as good
	rested := lab.CPU()
	time.Sleep(f.Rest)
	cost.Rest = lab.CPU() - rested
	return cost, nil
}

// open returns the informers of a side over all clusters, and the heap that only the objects take.
func (f fleet) open() (informers []subject[pod], objects float64, err error) {
	sources, objects, err := f.sources()
	if err != nil {
		return nil, 0, err
	}
	if f.Queue == clientGo.queue {
		for _, lw := range sources {
			informers = append(informers, newShared[pod](lw))
		}
		return informers, objects, nil
	}
	if len(sources) == 1 { // the informer with all
		inf, err := open(side{queue: f.Queue}, sources[0], options{})
		return []subject[pod]{inf}, objects, err
	}
	inf, err := informer.NewOverClusters(options{Queue: f.Queue}, informer.ClusterOptions{})
	if err != nil {
		return nil, 0, err
	}
	for i, lw := range sources {
		if err := inf.Engage(fmt.Sprint("cluster-", i), informer.ClusterSource{Source: lw}); err != nil {
			return nil, 0, err
		}
	}
	return []subject[pod]{custom[pod]{inf.CustomCacheInformer}}, objects, nil
}

// sources returns the sources of all clusters, and the heap that their objects take.
func (f fleet) sources() (all []cache.ListerWatcher, objects float64, err error) {
	before, _ := lab.Settled()
	if f.URLs == nil {
		for range f.Clusters {
			all = append(all, newSource(f.Objects).listWatch())
		}
		after, _ := lab.Settled()
		return all, after - before, nil
	}
	decoded := make([]pod, f.Objects)
	for i := range decoded {
		decoded[i] = decodePod(newPod(i, i, 0))
	}
	after, _ := lab.Settled()
	runtime.KeepAlive(decoded)
	for i, url := range f.URLs {
		// With equal certificates, client-go would give all clients one transport.
		config := &rest.Config{Host: url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: fmt.Appendf(slices.Clone(f.CA), "cluster %d\n", i)}}
		if f.Queue != clientGo.queue {
			config.Wrap(informer.Transport)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, informer.ListWatch(client.CoreV1().Pods("")))
	}
	return all, (after - before) * float64(f.Clusters), nil
}

// openFiles returns how many files and connections this process has open, and 0 on systems without /proc.
func openFiles() int {
	open, _ := os.ReadDir("/proc/self/fd")
	return len(open)
}
