package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
)

// byIP is the name of the index of Pods by their addresses.
const byIP = "ip"

// agent knows the Pods of one node.
type agent struct {
	pods *informer.CustomCacheInformer[*corev1.Pod]
}

func newAgent(client kubernetes.Interface, node string) (*agent, error) {
	if node == "" {
		return nil, fmt.Errorf("the name of the node is empty: set -node or $NODE_NAME")
	}
	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{
		// The API server selects, so the Pods of other nodes cost neither network nor memory here.
		TweakListOptions: func(opts *metav1.ListOptions) {
			opts.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		},
		Transform:    strip,
		Indexers:     informer.Indexers[*corev1.Pod]{byIP: addresses},
		DrainTimeout: stopTimeout,
	})
	if err != nil {
		return nil, err
	}
	a := &agent{pods: pods}
	_, err = pods.AddWatcher(informer.WatcherFunc[*corev1.Pod](logAddresses), informer.WatcherOptions{Name: "log"})
	return a, err
}

// strip keeps only the parts of a Pod that the agent reads, and so saves most of the memory. The
// informer needs namespace, name, UID and resourceVersion.
func strip(pod *corev1.Pod) (*corev1.Pod, error) {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIPs: pod.Status.PodIPs},
	}, nil
}

// addresses returns the addresses that belong to the Pod and to no other, in canonical form:
//   - A Pod has several in a dual-stack cluster.
//   - A finished Pod keeps its addresses in its status, but the next Pod may have them already.
//   - A Pod of the host's network has the addresses of the node, as all such Pods have and the
//     node's own processes. So they belong to no Pod.
//
// If addresses returns an error, the informer reports it, and the index does not have the Pod.
func addresses(pod *corev1.Pod) ([]string, error) {
	if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil, nil
	}
	var all []string
	for _, ip := range pod.Status.PodIPs {
		address, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return nil, err
		}
		all = append(all, address.Unmap().String())
	}
	return all, nil
}

// answer is the answer to a lookup.
type answer struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	UID       types.UID         `json:"uid"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// lookup answers GET /pods/{ip} with the Pod that has the address. It makes no request to the
// API server.
func (a *agent) lookup(w http.ResponseWriter, r *http.Request) {
	address, err := netip.ParseAddr(r.PathValue("ip"))
	if err != nil || address.Zone() != "" {
		http.Error(w, "this is not an IP address", http.StatusBadRequest)
		return
	}
	if !a.pods.HasSynced() {
		// "Not found" would be a lie: the Pod may be in the part of the list that is still to come.
		http.Error(w, "the first list of Pods has not arrived", http.StatusServiceUnavailable)
		return
	}
	pods, err := a.pods.ByIndex(byIP, address.Unmap().String())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if len(pods) == 0 {
		http.Error(w, "no Pod of this node has this address", http.StatusNotFound)
		return
	}
	pod := slices.MaxFunc(pods, later)
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client is gone.
	_ = json.NewEncoder(w).Encode(answer{pod.Namespace, pod.Name, pod.UID, pod.Labels})
}

// later compares two Pods that have the same address. That is possible for a moment, because a
// kubelet may give an address to the next Pod before the API server hears that the last one has
// ended. A Pod that is being deleted comes before other Pods, and an older Pod before a younger
// one.
func later(a, b *corev1.Pod) int {
	if leaving := a.DeletionTimestamp != nil; leaving != (b.DeletionTimestamp != nil) {
		if leaving {
			return -1
		}
		return 1
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
}

// logAddresses is a watcher that logs which Pod takes or frees an address. The informer calls it
// for one change after the other. Lookups do not wait for it.
func logAddresses(ctx context.Context, e informer.Event[*corev1.Pod]) error {
	var before, after []string // an error was reported by the index
	if e.Type != informer.EventAdded {
		before, _ = addresses(e.Old)
	}
	if e.Type != informer.EventDeleted {
		after, _ = addresses(e.New)
	}
	logger := klog.FromContext(ctx)
	for _, ip := range before {
		if !slices.Contains(after, ip) {
			logger.Info("Address freed", "ip", ip, "pod", e.Key())
		}
	}
	for _, ip := range after {
		if !slices.Contains(before, ip) {
			logger.Info("Address taken", "ip", ip, "pod", e.Key())
		}
	}
	return nil
}
