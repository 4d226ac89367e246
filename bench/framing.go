package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	metadataclient "k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/share"
)

// decoding is the argument of a process that starts one informer over a canned server.
type decoding struct {
	reading

	Client  string // "pods", "typed", "dynamic" or "metadata"
	Intake  informer.IntakeMode
	Share   bool
	Omit    bool // no managed fields; client-go's informer has a transform for that
	DropIn  bool // ours is a ClientGo, which has the transform, too
	Updates bool // wait for the last update, too
}

func framingSection(sz sizes) section {
	canned := newCannedServer(sz)
	s := section{
		name:  "framing",
		title: "From the body of an answer to the object",
		about: fmt.Sprintf("A canned API server in another process sends %s custom resources of 0.9 kB as JSON, or %s Pods of the mix (package internal/mix) as protobuf, over HTTP/2 and TLS; "+
			"lists are compressed if the client asks for it, as client-go does. Each measurement is a process of its own. Its CPU time, with that of the collector, is from the start until the informer has synced and its "+
			"one handler was called for all. Our side has config.Wrap(informer.Transport), client-go's informer does not. The peak is of anonymous memory, sampled each 5 ms. ",
			lab.Thousands(sz.resources), lab.Thousands(sz.framedPods)) +
			fmt.Sprintf("Updates are %s, sent as fast as the client reads them, for %s objects; the figure is from the sync until the last one, per update.", lab.Thousands(sz.bursts), lab.Thousands(burstObjects)),
		oneQueue: true,
	}
	add := func(name, way string, d decoding, floors ...floor) {
		rows, scale := []row{{name: "CPU", unit: "ms"}, {name: "time", unit: "ms"}, {name: "peak", unit: "MiB"}}, time.Millisecond
		if d.Updates {
			rows = []row{{name: "CPU per update", unit: "µs"}, {name: "time per update", unit: "µs"}}
			scale = time.Microsecond * time.Duration(sz.bursts)
		}
		for i, f := range floors {
			rows[i].floor = f
		}
		s.cases = append(s.cases, canned.measurement(named(name+": ", rows...), way, "decoding",
			func(url string, ours bool) any { d.URL, d.Ours = url, ours; return d },
			func(c cost) []float64 {
				return []float64{float64(c.CPU) / float64(scale), float64(c.Wall) / float64(scale), c.Peak / lab.MiB}[:len(rows)]
			}))
	}
	for _, client := range []string{"dynamic", "typed", "metadata"} {
		add("custom resources, "+client+" client, listed", "list", decoding{Client: client}, atMost(0.6))
		add("custom resources, "+client+" client, streamed", "stream", decoding{Client: client}, atMost(0.5))
	}
	add("custom resources, dynamic client, listed, IntakeEarly", "list", decoding{Client: "dynamic", Intake: informer.IntakeEarly}, atMost(0.6))
	add("custom resources, dynamic client, listed, Share", "list", decoding{Client: "dynamic", Share: true})
	add("custom resources, dynamic client, listed, without managed fields", "list", decoding{Client: "dynamic", Omit: true}, atMost(0.6))
	add("custom resources, typed client, listed, without managed fields", "list", decoding{Client: "typed", Omit: true}, atMost(0.6))
	add("Pods, protobuf, listed, without managed fields", "list", decoding{Client: "pods", Omit: true}, atMost(1.1), floor{}, atMost(0.75))
	add("Pods, protobuf, listed, drop-in with a transform", "list", decoding{Client: "pods", Omit: true, DropIn: true})
	add("Pods, protobuf, listed, drop-in with a transform, IntakeWhole", "list", decoding{Client: "pods", Omit: true, DropIn: true, Intake: informer.IntakeWhole})
	add("Pods, protobuf, listed", "list", decoding{Client: "pods"}, atMost(1.1), floor{}, atMost(0.75))
	add("Pods, protobuf, streamed", "stream", decoding{Client: "pods"}, atMost(0.85))
	add("custom resources, dynamic client", "updates", decoding{Client: "dynamic", Updates: true}, atMost(0.6))
	add("Pods, protobuf", "updates", decoding{Client: "pods", Updates: true}, atMost(0.9))
	return s
}

func (d decoding) measure() (cost, error) {
	config := d.config()
	switch d.Client {
	case "pods":
		return decode[*corev1.Pod](d, informer.ListWatch(kubernetes.NewForConfigOrDie(config).CoreV1().Pods("")))
	case "typed":
		client, err := newWidgets(config)
		if err != nil {
			return cost{}, err
		}
		return decode[*Widget](d, informer.ListWatch(client))
	case "metadata":
		return decode[*metav1.PartialObjectMetadata](d, informer.ListWatch(metadataclient.NewForConfigOrDie(config).Resource(widgetResource)))
	}
	return decode[*unstructured.Unstructured](d, informer.ListWatch(dynamic.NewForConfigOrDie(config).Resource(widgetResource)))
}

// decode runs an informer over a source.
func decode[T informer.Object](d decoding, lw cache.ListerWatcher) (c cost, err error) {
	l := lab.NewLaunch()
	inf, err := openDecoding[T](d, lw)
	if err != nil {
		return c, err
	}
	last := make(chan struct{})
	reg, err := inf.add(func(obj T) {
		if obj.GetResourceVersion() == lastVersion {
			close(last)
		}
	}, everyEvent)
	if err != nil {
		return c, err
	}
	running := start(inf.run)
	defer running.stop(&err)
	if err := running.await(reg.synced); err != nil {
		return c, err
	}
	l.Done()
	c = cost{CPU: l.CPU, Wall: l.All, Peak: l.Peak}
	if d.Updates {
		if err := running.await(last); err != nil {
			return c, err
		}
		c.CPU, c.Wall = lab.CPU()-c.CPU, l.Since()-c.Wall
	}
	return c, nil
}

func openDecoding[T informer.Object](d decoding, lw cache.ListerWatcher) (subject[T], error) {
	if d.Ours && !d.DropIn {
		opts := informer.Options[T]{Intake: d.Intake}
		if d.Share {
			opts.Share = share.New()
		}
		if d.Omit {
			opts.Omit = []string{"metadata.managedFields"}
		}
		return open(realFIFO, lw, opts)
	}
	inf := newShared[T](lw)
	if d.Ours {
		opts := informer.Options[informer.AnyObject]{Intake: d.Intake}
		inf.SharedIndexInformer = informer.ClientGo{Options: func(runtime.Object) (informer.Options[informer.AnyObject], error) { return opts, nil }}.
			NewSharedIndexInformer(lw, example[T](), 0, byNamespace)
	}
	if !d.Omit {
		return inf, nil
	}
	return inf, inf.SetTransform(func(obj any) (any, error) { return informer.StripManagedFields(obj.(informer.AnyObject)) })
}
