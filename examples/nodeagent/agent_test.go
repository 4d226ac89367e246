package main

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer/informertest"
)

// pod returns a Pod that runs on the node "here" and has these addresses.
func pod(name string, ips ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "here", Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, ip := range ips {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return pod
}

// on returns the Pod on another node.
func on(node string, pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeName = node
	return pod
}

// ended returns the Pod after its last container has exited. It keeps its addresses.
func ended(pod *corev1.Pod) *corev1.Pod {
	pod.Status.Phase = corev1.PodSucceeded
	return pod
}

// created returns the Pod with a time of creation, in seconds.
func created(at int64, pod *corev1.Pod) *corev1.Pod {
	pod.CreationTimestamp = metav1.Unix(at, 0)
	return pod
}

func (w *world) remove(name string) {
	w.Helper()
	if _, err := w.source.Delete(types.NamespacedName{Namespace: "default", Name: name}); err != nil {
		w.Fatal(err)
	}
}

func TestALookupFindsThePodWithTheAddress(t *testing.T) {
	failed, host := pod("failed", "10.0.0.4"), pod("host", "192.168.0.1")
	failed.Status.Phase = corev1.PodFailed
	host.Spec.HostNetwork = true
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, nil, pod("web", "10.0.0.1"), pod("dual", "10.0.0.2", "fd00::2"),
			ended(pod("job", "10.0.0.3")), failed, host, pod("pending"))
		const web = `{"namespace":"default","name":"web","uid":"uid-web","labels":{"app":"web"}}` + "\n"
		if status, body := w.get("/pods/10.0.0.1"); status != http.StatusOK || body != web {
			t.Errorf("the answer is %d %s, want %s", status, body, web)
		}
		w.finds("10.0.0.2", "dual")
		w.finds("fd00::2", "dual")
		w.finds("FD00:0:0::0002", "dual")
		w.finds("::ffff:10.0.0.1", "web")
		for _, free := range []string{"10.0.0.3", "10.0.0.4", "192.168.0.1", "10.0.0.99", "fd00::99"} {
			w.wants("/pods/"+free, http.StatusNotFound)
		}
		for _, nonsense := range []string{"web", "10.0.0", "10.0.0.1:80", "10.0.0.1%2F24", "fe80::1%25eth0"} {
			w.wants("/pods/"+nonsense, http.StatusBadRequest)
		}
	})
}

func TestAnAddressGoesFromPodToPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, nil, pod("first", "10.0.0.1"))
		w.finds("10.0.0.1", "first")
		w.remove("first")
		w.wants("/pods/10.0.0.1", http.StatusNotFound)
		w.source.Apply(pod("second"))
		w.source.Apply(pod("second", "10.0.0.1"))
		w.finds("10.0.0.1", "second")
		w.source.Apply(ended(pod("second", "10.0.0.1")))
		w.wants("/pods/10.0.0.1", http.StatusNotFound)
		w.source.Apply(pod("third", "10.0.0.1"))
		w.finds("10.0.0.1", "third")
		w.remove("second")
		w.finds("10.0.0.1", "third")
	})
}

// The API server may hear of the next Pod first, and of the end of the last one later.
func TestThePodThatTookAnAddressLaterHasIt(t *testing.T) {
	leaving := created(200, pod("leaving", "10.0.0.2"))
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(300, 0)}
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, nil, leaving,
			created(300, pod("young", "10.0.0.1")), created(100, pod("old", "10.0.0.1")), created(100, pod("staying", "10.0.0.2")))
		w.finds("10.0.0.1", "young")
		w.finds("10.0.0.2", "staying")
		w.remove("young")
		w.finds("10.0.0.1", "old")
	})
}

func TestPodsOfOtherNodesAreNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, nil, pod("ours", "10.0.0.1"), on("there", pod("theirs", "10.0.1.1")), on("", pod("waiting")))
		w.finds("10.0.0.1", "ours")
		w.wants("/pods/10.0.1.1", http.StatusNotFound)
		w.source.Apply(on("there", pod("late", "10.0.1.2")))
		w.wants("/pods/10.0.1.2", http.StatusNotFound)
		w.source.Apply(pod("waiting", "10.0.0.2")) // the scheduler has bound it
		w.finds("10.0.0.2", "waiting")
	})
}

func TestLookupsGoOnWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, nil, pod("stays", "10.0.0.1"), pod("goes", "10.0.0.2"))
		w.source.SetFaults(informertest.Faults{Down: true})
		time.Sleep(time.Hour)
		w.remove("goes")
		w.source.Apply(pod("comes", "10.0.0.3"))
		w.finds("10.0.0.1", "stays")
		w.finds("10.0.0.2", "goes") // the last state that the agent knows
		w.wants("/pods/10.0.0.3", http.StatusNotFound)
		w.wants("/readyz", http.StatusOK)
		w.wants("/livez", http.StatusOK)

		w.source.SetFaults(informertest.Faults{})
		time.Sleep(2 * time.Minute) // longer than the longest pause between two attempts
		w.finds("10.0.0.1", "stays")
		w.wants("/pods/10.0.0.2", http.StatusNotFound)
		w.finds("10.0.0.3", "comes")
	})
}

// The history of the API server may not reach back to the beginning of an outage. Then the
// deletes in between are only seen because the objects are missing from the next list.
func TestADeleteInALongOutageIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t.Context(), t, nil, pod("goes", "10.0.0.2"))
		w.finds("10.0.0.2", "goes")
		w.source.SetFaults(informertest.Faults{Mute: true})
		w.remove("goes")
		w.source.Expire()
		w.source.SetFaults(informertest.Faults{})
		time.Sleep(2 * time.Minute)
		w.wants("/pods/10.0.0.2", http.StatusNotFound)
	})
}

func TestThePodsInMemoryAreStripped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, client := informertest.NewSource(pod("web", "10.0.0.1")), fake.NewClientset()
		source.Serve(&client.Fake, "pods", &corev1.PodList{})
		a, err := newAgent(client, "here")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.pods.Run(ctx) }()
		if err := a.pods.WaitForSync(ctx); err != nil {
			t.Error(err)
		}
		stored, _, err := a.pods.Get(types.NamespacedName{Namespace: "default", Name: "web"})
		if err != nil || len(stored.Spec.Containers) != 0 || stored.ResourceVersion == "" {
			t.Errorf("the agent stores %v, %v", stored, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
