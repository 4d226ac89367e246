package main

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/share"
	"github.com/customcacheinformer/informer/store"
)

// sampled is the number of Pods whose size on the wire is measured.
const sampled = 100

func podsSection(sz sizes) section {
	about := fmt.Sprintf("Heap per object that is live after an informer with one watcher has streamed %d Pods, divided by their number. ", sz.pods) +
		"The Pods are of a Deployment, with a sidecar, an init container and managed fields; their names, UIDs and addresses vary. Each is decoded from protobuf when its turn comes, so it shares no string with another, and only the side keeps it. A reduced Pod has " +
		"the metadata without annotations and managed fields, the node's name, the phase and the Pod's IP. If the transform reduces the Pods, " +
		"which both sides can do, watchers get the reduced Pods too. If the store reduces them, which only our side can do, watchers get the " +
		"whole Pod; client-go's figure in this row is that of its transform. Metadata only is a source of PartialObjectMetadata. The live heap " +
		"hardly varies, so only one round is measured, without a warm-up round."
	heap := func(name string, measure func(context.Context, side) ([]float64, error)) measurement {
		return measurement{rows: []row{{name: name, unit: "B"}}, measure: measure}
	}
	return section{
		name:  "pods",
		title: fmt.Sprintf("Memory of %d Pods", sz.pods),
		about: about,
		still: true,
		cases: []measurement{
			{
				rows:    []row{{name: "a Pod as JSON", unit: "B", plain: true}, {name: "a Pod as protobuf", unit: "B", plain: true}},
				measure: func(context.Context, side) ([]float64, error) { return sizesOnWire() },
			},
			heap("heap per Pod", podHeap(sz.pods, decodePod, keeping[pod]{})),
			heap("heap per Pod, without managed fields", podHeap(sz.pods, decodePod, keeping[pod]{transform: informer.StripManagedFields[pod]})),
			heap("heap per Pod, reduced by the transform", podHeap(sz.pods, decodePod, keeping[pod]{transform: transformed})),
			heap("heap per Pod, reduced by the store", podHeap(sz.pods, decodePod, keeping[pod]{transform: transformed, store: projected})),
			heap("heap per Pod, metadata only", podHeap(sz.pods, decodeMetadata, keeping[metadata]{})),
			heap("heap per Pod, metadata only, without managed fields",
				podHeap(sz.pods, decodeMetadata, keeping[metadata]{transform: informer.StripManagedFields[metadata]})),
		},
	}
}

// reduced returns a Pod with only the fields that a typical controller reads.
func reduced(p pod) pod {
	kept := &corev1.Pod{ObjectMeta: p.ObjectMeta}
	kept.Annotations, kept.ManagedFields = nil, nil
	kept.Spec.NodeName = p.Spec.NodeName
	kept.Status.Phase, kept.Status.PodIP = p.Status.Phase, p.Status.PodIP
	return kept
}

func transformed(p pod) (pod, error) { return reduced(p), nil }

func projected() cache.Indexer { return store.NewProjection(reduced) }

// keeping says how a side reduces the objects that it keeps.
type keeping[T informer.Object] struct {
	transform func(T) (T, error)
	// store, if set, replaces transform on the sides that support it.
	store func() cache.Indexer
	// shared makes equal parts of objects one piece of memory on our sides.
	shared bool
}

// open returns an informer that keeps objects as k says.
func (k keeping[T]) open(s side, lw cache.ListerWatcher) (subject[T], error) {
	if s == clientGo {
		inf := newShared[T](lw)
		if k.transform == nil {
			return inf, nil
		}
		return inf, inf.SetTransform(func(obj any) (any, error) { return k.transform(obj.(T)) })
	}
	opts := informer.Options[T]{Queue: s.queue, Transform: k.transform}
	if k.store != nil {
		opts.Transform, opts.Store = nil, k.store()
	}
	if k.shared {
		opts.Share = share.New()
	}
	opts.WatchList = informer.WatchListOn // lw only streams, also for a store of its own
	inf, err := informer.NewFrom(lw, opts)
	if err != nil {
		return nil, err
	}
	return custom[T]{inf}, nil
}

// podHeap returns a measurement of the heap that a side keeps for n Pods, per Pod.
func podHeap[T informer.Object](n int, decode func(pod) T, k keeping[T]) func(context.Context, side) ([]float64, error) {
	return func(ctx context.Context, s side) (values []float64, err error) {
		template, err := readPod()
		if err != nil {
			return nil, err
		}
		return heapOf(ctx, s, n, func(i int) T { return decode(vary(template, i)) }, k)
	}
}

// heapOf measures the heap that a side keeps for n objects, per object.
func heapOf[T informer.Object](ctx context.Context, s side, n int, object func(i int) T, k keeping[T]) (values []float64, err error) {
	before, _ := settled()
	inf, err := k.open(s, wireSource(n, object))
	if err != nil {
		return nil, err
	}
	handled := newTally(1)
	if _, err := inf.add(count[T](handled, n), informer.WatcherOptions{}); err != nil {
		return nil, err
	}
	running := start(inf.run)
	defer running.stop(&err)
	if err := handled.wait(ctx); err != nil {
		return nil, err
	}
	after, _ := settled()
	return []float64{(after - before) / float64(n)}, nil
}

// sizesOnWire returns the mean size of a Pod, as JSON and as protobuf.
func sizesOnWire() ([]float64, error) {
	template, err := readPod()
	if err != nil {
		return nil, err
	}
	var asJSON, asProtobuf int
	for i := range sampled {
		p := vary(template, i)
		text, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		asJSON, asProtobuf = asJSON+len(text), asProtobuf+p.Size()
	}
	return []float64{float64(asJSON) / sampled, float64(asProtobuf) / sampled}, nil
}
