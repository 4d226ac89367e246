package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/mix"
)

// realPod is a running Pod of a Deployment, with a sidecar, an init container and the
// managed fields of kube-controller-manager and kubelet.
//
//go:embed pod.json
var realPod []byte

// This is how the Pods of the cluster share ReplicaSets, nodes and namespaces.
const (
	podsPerReplicaSet = 20
	podsPerNode       = 50
	replicaSetsPerNS  = 10
)

// metadata is an object of a source that serves only metadata.
type metadata = *metav1.PartialObjectMetadata

// readPod returns the Pod that all others are made from.
func readPod() (pod, error) {
	// Managed fields are kept as written, so without this they would have the file's
	// indentation.
	var compact bytes.Buffer
	if err := json.Compact(&compact, realPod); err != nil {
		return nil, err
	}
	p := &corev1.Pod{}
	err := json.Unmarshal(compact.Bytes(), p)
	return p, err
}

// vary makes p the i-th Pod of a cluster. The Pod gets its own name, UID and addresses, and
// the names and addresses that it shares with the Pods of its ReplicaSet, namespace or node.
func vary(p pod, i int) pod {
	own, set, node := numbers(i), numbers(-1-i/podsPerReplicaSet), i/podsPerNode
	p.Namespace = fmt.Sprintf("team-%04d", i/podsPerReplicaSet/replicaSetsPerNS)
	app := fmt.Sprintf("app-%05d", i/podsPerReplicaSet)
	hash := mix.Letters(set, 10)
	owner := &p.OwnerReferences[0]
	owner.Name, owner.UID = app+"-"+hash, mix.UID(set)
	p.GenerateName = owner.Name + "-"
	p.Name, p.UID = p.GenerateName+mix.Letters(own, 5), mix.UID(own)
	p.ResourceVersion = strconv.Itoa(184_000_000 + i)
	p.Labels["app.kubernetes.io/name"], p.Labels["app.kubernetes.io/instance"] = app, app
	p.Labels["pod-template-hash"] = hash
	p.Spec.NodeName = fmt.Sprintf("ip-10-12-%d-%d.eu-central-1.compute.internal", node/250, node%250)
	p.Status.HostIP = fmt.Sprintf("10.12.%d.%d", node/250, node%250)
	p.Status.HostIPs = []corev1.HostIP{{IP: p.Status.HostIP}}
	p.Status.PodIP = fmt.Sprintf("10.%d.%d.%d", 128+i/62500, i/250%250, i%250)
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for k := range statuses {
			statuses[k].ContainerID = fmt.Sprintf("containerd://%016x%016x%016x%016x", own.Uint64(), own.Uint64(), own.Uint64(), own.Uint64())
		}
	}
	return p
}

// numbers returns a random generator that yields the same numbers each time for one seed.
func numbers(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 0)) }

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

// wireSource returns a source that streams n objects and then nothing more. It makes each
// object when its turn comes, and keeps none of them.
func wireSource[T informer.Object](n int, object func(i int) T) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, errors.New("the source only streams")
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents == nil || !*opts.SendInitialEvents {
				return nil, errors.New("the source streams but once")
			}
			events := make(chan watch.Event, watchBuffer)
			w := watch.NewProxyWatcher(events)
			go sendInitial(events, w.StopChan(), n, object)
			return w, nil
		},
	}
}

// sendInitial sends n objects, and then the bookmark that ends the initial events. It returns
// when the watch is stopped.
func sendInitial[T informer.Object](events chan<- watch.Event, stopped <-chan struct{}, n int, object func(i int) T) {
	defer close(events)
	for i := range n + 1 {
		e := watch.Event{Type: watch.Added}
		if i < n {
			e.Object = object(i)
		} else {
			e = watch.Event{Type: watch.Bookmark, Object: endOfInitial[T]()}
		}
		select {
		case events <- e:
		case <-stopped:
			return
		}
	}
	<-stopped
}

// endOfInitial returns the bookmark that ends the initial events.
func endOfInitial[T informer.Object]() T {
	bookmark := example[T]().(T)
	bookmark.SetResourceVersion("999999999")
	bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return bookmark
}
