package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
)

// launch is the argument of a process that starts informers or a sink over a canned server.
type launch struct {
	URL    string
	Ours   bool
	Limit  int  // of lists at a time; 0 for none
	Plain  bool // without informer.Transport
	Many   int  // informers
	Stream bool // of the first state, which is not the default of a sink
}

// launchCost is what that takes until all have synced.
type launchCost struct {
	CPU, Wall time.Duration
	Peak      float64 // of anonymous memory
	Heap      float64 // live afterwards
}

func startSection(sz sizes) section {
	canned := sync.OnceValue(func() *cannedServer { return newCannedServer(sz) })
	s := section{
		name:  "start",
		title: "Many informers at once, and a sink",
		about: fmt.Sprintf("A canned API server in another process answers each list with %s custom resources of 0.9 kB as JSON, or %s Pods of the mix as protobuf. Each measurement is a process of its own. "+
			"The informers are of the dynamic client, start together, and each has a type of its own. Our side has informer.Transport, except in the rows without it, and by a ListLimit lets 4 of them list at a time, or all. "+
			"The sink keeps two lines of text for each Pod, in a map. client-go's reflector fills the same map through a cache.Store. The live heap is after a collection, for each Pod.",
			lab.Thousands(sz.each), lab.Thousands(sz.framedPods)),
		oneQueue: true,
	}
	add := func(name, role, way string, rows []row, st launch, values func(launchCost) []float64) {
		for i := range rows {
			rows[i].name = name + ": " + rows[i].name
		}
		s.cases = append(s.cases, measurement{rows, func(ctx context.Context, side side) ([]float64, error) {
			st := st
			st.Ours = side != clientGo
			var cost launchCost
			err := canned().serve(way, func(url string) error {
				st.URL = url
				return lab.Measure(ctx, role, st, &cost)
			})
			if err != nil {
				return nil, err
			}
			return values(cost), nil
		}})
	}
	for _, plain := range []bool{false, true} {
		for _, limit := range []int{4, 0} {
			name := fmt.Sprintf("%d informers, %d lists at a time", manyInformers, limit)
			if limit == 0 {
				name = fmt.Sprintf("%d informers, all at a time", manyInformers)
			}
			if plain {
				name += ", without Transport"
			}
			add(name, "starting", "many", []row{{name: "peak", unit: "MiB"}, {name: "time", unit: "ms"}}, launch{Limit: limit, Plain: plain, Many: manyInformers},
				func(c launchCost) []float64 {
					return []float64{c.Peak / lab.MiB, float64(c.Wall) / float64(time.Millisecond)}
				})
		}
	}
	for _, way := range []string{"list", "stream"} {
		add("a sink of Pods, by a "+way, "sinking", way, []row{{name: "CPU", unit: "ms"}, {name: "peak", unit: "MiB", floor: atMost(0.5)}, {name: "live heap of a Pod", unit: "B"}}, launch{Stream: way == "stream"},
			func(c launchCost) []float64 {
				return []float64{float64(c.CPU) / float64(time.Millisecond), c.Peak / lab.MiB, c.Heap / float64(sz.framedPods)}
			})
	}
	return s
}

const manyInformers = 40

func (st launch) config() *rest.Config {
	config := &rest.Config{Host: st.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if st.Ours && !st.Plain {
		config.Wrap(informer.Transport)
	}
	return config
}

// measureMany starts informers and waits until all have synced.
func (st launch) measureMany() (launchCost, error) {
	client := dynamic.NewForConfigOrDie(st.config())
	limit := informer.NewListLimit(st.Limit)
	ctx, cancel := context.WithTimeout(context.Background(), measuring)
	defer cancel()
	l := lab.NewLaunch()
	var all []registration
	var running sync.WaitGroup
	for n := range st.Many {
		lw := informer.ListWatch(client.Resource(widgetGroup.WithResource(fmt.Sprint("widgets", n))))
		var inf subject[*unstructured.Unstructured] = newShared[*unstructured.Unstructured](lw)
		if st.Ours {
			ours, err := informer.NewFrom(lw, informer.Options[*unstructured.Unstructured]{Name: fmt.Sprint("widgets", n), Lists: limit})
			if err != nil {
				return launchCost{}, err
			}
			inf = custom[*unstructured.Unstructured]{ours}
		}
		reg, err := inf.add(func(*unstructured.Unstructured) {}, everyEvent)
		if err != nil {
			return launchCost{}, err
		}
		all = append(all, reg)
		running.Go(func() { _ = inf.run(ctx) })
	}
	for _, reg := range all {
		select {
		case <-reg.synced:
		case <-ctx.Done():
			return launchCost{}, context.Cause(ctx)
		}
	}
	l.Done()
	cancel()
	running.Wait()
	return launchCost{CPU: l.CPU, Wall: l.All, Peak: l.Peak}, nil
}

// lines is a sink that keeps two lines of text for each Pod. It is also the part of a cache.Store that a reflector uses.
type lines struct {
	cache.Store // nil

	mu     sync.Mutex
	of     map[string]string
	synced chan struct{}
}

func newLines() *lines { return &lines{of: map[string]string{}, synced: make(chan struct{})} }

func line(p *corev1.Pod) string {
	return fmt.Sprintf("kube_pod_info{namespace=%q,pod=%q,uid=%q,node=%q,host_ip=%q,pod_ip=%q,priority_class=%q} 1\nkube_pod_status_phase{namespace=%q,pod=%q,phase=%q} 1\n",
		p.Namespace, p.Name, p.UID, p.Spec.NodeName, p.Status.HostIP, p.Status.PodIP, p.Spec.PriorityClassName, p.Namespace, p.Name, p.Status.Phase)
}

func (l *lines) Put(_ context.Context, key string, p *corev1.Pod) error {
	text := line(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[key] = text
	return nil
}

func (l *lines) Remove(_ context.Context, key string, _ types.UID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, key)
	return nil
}

func (l *lines) Add(obj any) error {
	p := obj.(*corev1.Pod)
	return l.Put(context.Background(), p.Namespace+"/"+p.Name, p)
}

func (l *lines) Update(obj any) error { return l.Add(obj) }

func (l *lines) Delete(obj any) error {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	return errors.Join(err, l.Remove(context.Background(), key, ""))
}

func (l *lines) Replace(list []any, _ string) error {
	for _, obj := range list {
		_ = l.Add(obj)
	}
	close(l.synced)
	return nil
}

// measureSink fills a sink and waits until it has all Pods.
func (st launch) measureSink() (launchCost, error) {
	lw := informer.ListWatch(kubernetes.NewForConfigOrDie(st.config()).CoreV1().Pods(""))
	ctx, cancel := context.WithTimeout(context.Background(), measuring)
	defer cancel()
	var running sync.WaitGroup
	l, sink := lab.NewLaunch(), newLines()
	before, _ := lab.Settled()
	synced := (<-chan struct{})(sink.synced)
	if st.Ours {
		opts := informer.Options[*corev1.Pod]{}
		if st.Stream {
			opts.WatchList = informer.WatchListOn
		}
		inf, err := informer.NewSink(lw, sink, opts)
		if err != nil {
			return launchCost{}, err
		}
		synced = inf.Synced()
		running.Go(func() { _ = inf.Run(ctx) })
	} else {
		r := cache.NewReflectorWithOptions(lw, &corev1.Pod{}, sink, cache.ReflectorOptions{})
		running.Go(func() { r.RunWithContext(ctx) })
	}
	select {
	case <-synced:
	case <-ctx.Done():
		return launchCost{}, context.Cause(ctx)
	}
	l.Done()
	heap, _ := lab.Settled()
	cancel()
	running.Wait()
	runtime.KeepAlive(sink)
	return launchCost{l.CPU, l.All, l.Peak, heap - before}, nil
}
