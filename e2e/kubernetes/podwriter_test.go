package kubernetes_test

import (
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

type podWriter struct {
	*cluster
	pods typedcorev1.PodInterface

	mu     sync.Mutex        // protects the rest
	last   map[string]string // the version of each Pod after the last write, "" if it is deleted
	writes int               // that are events of watches
}

// each calls write for the numbers below count, several at a time.
func (w *podWriter) each(count int, write func(n int) error) {
	w.Helper()
	var group errgroup.Group
	group.SetLimit(writers)
	for n := range count {
		group.Go(func() error { return write(n) })
	}
	w.ok(group.Wait())
}

// wrote notes the result of a write.
func (w *podWriter) wrote(name, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	w.last[name] = version
}

func (w *podWriter) create(n int) error {
	pod, err := w.pods.Create(w.ctx, newPod(fmt.Sprintf("pod-%04d", n)), metav1.CreateOptions{})
	if err == nil {
		w.wrote(pod.Name, pod.ResourceVersion)
	}
	return err
}

// newPod returns a Pod as a client sends it.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

// live lets a Pod run through a part of its life, which depends on its number.
func (w *podWriter) live(n int) error {
	if n >= earlyPods {
		if err := w.create(n); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("pod-%04d", n)
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded}[:n%3] {
		if err := w.setPhase(name, phase); err != nil {
			return err
		}
	}
	switch n % 5 {
	case 0:
		return w.delete(name)
	case 1: // a new Pod has the name
		if err := w.delete(name); err != nil {
			return err
		}
		return w.create(n)
	}
	return nil
}

// setPhase does what a kubelet does.
func (w *podWriter) setPhase(name string, phase corev1.PodPhase) error {
	pod, err := w.pods.Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Status.Phase = phase
	if pod, err = w.pods.UpdateStatus(w.ctx, pod, metav1.UpdateOptions{}); err == nil {
		w.wrote(name, pod.ResourceVersion)
	}
	return err
}

// delete deletes a Pod. The API server writes a deletionTimestamp first.
func (w *podWriter) delete(name string) error {
	err := w.pods.Delete(w.ctx, name, *metav1.NewDeleteOptions(0))
	if err == nil {
		w.wrote(name, "")
		w.wrote(name, "")
	}
	return err
}
