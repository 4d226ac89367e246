package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
)

// starting is the argument of a process that starts informers or a sink over a canned server.
type starting struct {
	reading

	Limit  int  // of lists at a time; 0 for none
	Stream bool // of the first state, which is not the default of a sink
}

func startSection(sz sizes) section {
	canned := newCannedServer(sz)
	s := section{
		name:  "start",
		title: "Many informers at once, and a sink",
		about: fmt.Sprintf("A canned API server in another process answers each list with %s custom resources of 0.9 kB as JSON, or %s Pods of the mix as protobuf. Each measurement is a process of its own. "+
			"The informers are of the dynamic client, start together, and each has a type of its own. Our side has informer.Transport, except in the rows without it, and by a ListLimit lets 4 of them list at a time, or all. "+
			"The sink keeps two lines of text for each Pod, in a map. client-go's reflector fills the same map through a cache.Store. The live heap is after a collection, for each Pod.",
			lab.Thousands(sz.each), lab.Thousands(sz.framedPods)),
		oneQueue: true,
	}
	add := func(name, role, way string, rows []row, st starting, values func(cost) []float64) {
		s.cases = append(s.cases, canned.measurement(named(name+": ", rows...), way, role,
			func(url string, ours bool) any { st.URL, st.Ours = url, ours; return st }, values))
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
			add(name, "starting", "many", []row{{name: "peak", unit: "MiB"}, {name: "time", unit: "ms"}}, starting{reading: reading{Plain: plain}, Limit: limit},
				func(c cost) []float64 { return []float64{c.Peak / lab.MiB, milliseconds(c.Wall)} })
		}
	}
	for _, way := range []string{"list", "stream"} {
		add("a sink of Pods, by a "+way, "sinking", way, []row{{name: "CPU", unit: "ms"}, {name: "peak", unit: "MiB", floor: atMost(0.5)}, {name: "live heap of a Pod", unit: "B"}}, starting{Stream: way == "stream"},
			func(c cost) []float64 {
				return []float64{milliseconds(c.CPU), c.Peak / lab.MiB, c.Heap / float64(sz.framedPods)}
			})
	}
	return s
}

const manyInformers = 40

// measureMany starts informers and waits until all have synced.
func (st starting) measureMany() (c cost, err error) {
	client, limit, side := dynamic.NewForConfigOrDie(st.config()), informer.NewListLimit(st.Limit), clientGo
	if st.Ours {
		side = deltaFIFO
	}
	l := lab.NewLaunch()
	var all [manyInformers]registration
	for n := range all {
		name := fmt.Sprint("widgets", n)
		var inf subject[*unstructured.Unstructured]
		inf, err = open(side, informer.ListWatch(client.Resource(widgetGroup.WithResource(name))),
			informer.Options[*unstructured.Unstructured]{Name: name, Lists: limit})
		if err != nil {
			return c, err
		}
		if all[n], err = inf.add(func(*unstructured.Unstructured) {}, everyEvent); err != nil {
			return c, err
		}
		running := start(inf.run)
		defer running.stop(&err)
	}
	for _, reg := range all {
		<-reg.synced
	}
	l.Done()
	return cost{CPU: l.CPU, Wall: l.All, Peak: l.Peak}, nil
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
func (st starting) measureSink() (c cost, err error) {
	lw := informer.ListWatch(kubernetes.NewForConfigOrDie(st.config()).CoreV1().Pods(""))
	l, sink := lab.NewLaunch(), newLines()
	before, _ := lab.Settled()
	synced := (<-chan struct{})(sink.synced)
	run := func(ctx context.Context) error {
		cache.NewReflectorWithOptions(lw, &corev1.Pod{}, sink, cache.ReflectorOptions{}).RunWithContext(ctx)
		return nil
	}
	if st.Ours {
		var opts options
		if st.Stream {
			opts.WatchList = informer.WatchListOn
		}
		inf, err := informer.NewSink(lw, sink, opts)
		if err != nil {
			return c, err
		}
		synced, run = inf.Synced(), inf.Run
	}
	running := start(run)
	defer running.stop(&err)
	<-synced
	l.Done()
	heap, _ := lab.Settled()
	runtime.KeepAlive(sink)
	return cost{l.CPU, l.All, l.Peak, heap - before}, nil
}
