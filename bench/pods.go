package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/internal/mix"
	"github.com/customcacheinformer/informer/share"
	"github.com/customcacheinformer/informer/store"
)

// mixSeed makes every run use the same objects.
const mixSeed = 1

// metadata is an object of a source that serves only metadata.
type metadata = *metav1.PartialObjectMetadata

func podsSection(sz sizes) section {
	about := fmt.Sprintf("Heap per object that is live after an informer with one watcher has streamed %d Pods, divided by their number. ", sz.pods) +
		"The Pods are those of the next section. Each is decoded from protobuf when its turn comes, so it shares no string with another, and only the side keeps it. A reduced Pod has " +
		"the metadata without annotations and managed fields, the node's name, the phase and the Pod's IP. If the transform reduces the Pods, " +
		"which both sides can do, watchers get the reduced Pods too. If the store reduces them, which only our side can do, watchers get the " +
		"whole Pod; client-go's figure in this row is that of its transform. Metadata only is a source of PartialObjectMetadata. The live heap " +
		"hardly varies, so only one round is measured, without a warm-up round."
	transformed := func(p pod) (pod, error) { return reduced(p), nil }
	return section{
		name:  "pods",
		title: fmt.Sprintf("Memory of %d Pods", sz.pods),
		about: about,
		once:  true,
		cases: []measurement{
			{
				rows:    []row{{name: "a Pod as JSON", unit: "B", plain: true}, {name: "a Pod as protobuf", unit: "B", plain: true}},
				measure: func(context.Context, side) ([]float64, error) { return sizesOnWire(sz.pods) },
			},
			podHeap("heap per Pod", sz.pods, decodePod, keeping[pod]{}),
			podHeap("heap per Pod, without managed fields", sz.pods, decodePod, keeping[pod]{transform: informer.StripManagedFields[pod]}),
			podHeap("heap per Pod, reduced by the transform", sz.pods, decodePod, keeping[pod]{transform: transformed}),
			podHeap("heap per Pod, reduced by the store", sz.pods, decodePod,
				keeping[pod]{transform: transformed, store: func() cache.Indexer { return store.NewProjection(reduced) }}),
			podHeap("heap per Pod, metadata only", sz.pods, decodeMetadata, keeping[metadata]{}),
			podHeap("heap per Pod, metadata only, without managed fields", sz.pods, decodeMetadata,
				keeping[metadata]{transform: informer.StripManagedFields[metadata]}),
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

// keeping is how a side reduces the objects that it keeps.
type keeping[T informer.Object] struct {
	transform func(T) (T, error)
	// store, if set, replaces transform on the sides that support it.
	store func() cache.Indexer
	// shared makes equal parts of objects one piece of memory on our sides.
	shared bool
}

// open returns an informer that keeps objects as described by k.
func (k keeping[T]) open(s side, lw cache.ListerWatcher) (subject[T], error) {
	if s == clientGo {
		inf := newShared[T](lw)
		if k.transform == nil {
			return inf, nil
		}
		return inf, inf.SetTransform(func(obj any) (any, error) { return k.transform(obj.(T)) })
	}
	opts := informer.Options[T]{Transform: k.transform, WatchList: informer.WatchListOn} // lw only streams, also for a store of its own
	if k.store != nil {
		opts.Transform, opts.Store = nil, k.store()
	}
	if k.shared {
		opts.Share = share.New()
	}
	return open(s, lw, opts)
}

// podHeap returns a measurement of the heap that a side keeps for n Pods, per Pod.
func podHeap[T informer.Object](name string, n int, decode func(pod) T, k keeping[T]) measurement {
	return measurement{
		rows: []row{{name: name, unit: "B"}},
		measure: func(ctx context.Context, s side) (values []float64, err error) {
			cluster := mix.New(mixSeed, n)
			// The cluster keeps the owner of its last Pod, so the last Pod must always be the same.
			live := func() float64 {
				cluster.Pod(0, 0)
				heap, _ := lab.Settled()
				return heap
			}
			before := live()
			inf, err := k.open(s, wireSource(n, func(i int) T { return decode(cluster.Pod(i, 0)) }))
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
			return []float64{(live() - before) / float64(n)}, nil
		},
	}
}

// sizesOnWire returns the mean size of a Pod, as JSON and as protobuf.
func sizesOnWire(n int) ([]float64, error) {
	const step = 100 // one Pod of each hundred is measured
	cluster := mix.New(mixSeed, n)
	var asJSON, asProtobuf, of float64
	for i := 0; i < n; i += step {
		p := cluster.Pod(i, 0)
		text, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		asJSON, asProtobuf, of = asJSON+float64(len(text)), asProtobuf+float64(p.Size()), of+1
	}
	return []float64{asJSON / of, asProtobuf / of}, nil
}

// decodePod returns a Pod as a client gets it. It is decoded from protobuf, so it shares
// nothing with any other.
func decodePod(sent pod) pod {
	p := &corev1.Pod{}
	pass(sent, p)
	return p
}

// decodeMetadata is like decodePod, for a client that asks only for the metadata.
func decodeMetadata(sent pod) metadata {
	m := &metav1.PartialObjectMetadata{}
	pass(&metav1.PartialObjectMetadata{ObjectMeta: sent.ObjectMeta}, m)
	return m
}

// pass encodes from, and decodes the result into to.
func pass(from interface{ Marshal() ([]byte, error) }, to interface{ Unmarshal([]byte) error }) {
	wire, err := from.Marshal()
	if err == nil {
		err = to.Unmarshal(wire)
	}
	if err != nil {
		panic(err) // cannot happen with an object of this program
	}
}

// wireSource returns a source that streams n objects and then nothing more.
func wireSource[T informer.Object](n int, object func(i int) T) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, errors.New("the source only streams")
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents == nil || !*opts.SendInitialEvents {
				return nil, errors.New("the source streams but once")
			}
			return lab.Stream(n, "999999999", example[T]().(T), object), nil
		},
	}
}
