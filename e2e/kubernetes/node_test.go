package kubernetes_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// TestAnInformerOfANodeGetsThePodsBoundToIt has an informer with the field selector of a kubelet.
func TestAnInformerOfANodeGetsThePodsBoundToIt(t *testing.T) {
	c := newCluster(t, shared)
	namespace := c.namespace()
	pods := c.client.CoreV1().Pods(namespace)
	for _, name := range []string{"early", "here", "elsewhere", "waiting"} {
		_, err := pods.Create(c.ctx, newPod(name), metav1.CreateOptions{})
		c.ok(err)
	}
	bind := func(name, node string) {
		c.ok(pods.Bind(c.ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{}))
	}
	node := namespace + "-node"
	bind("early", node)

	inf, err := informer.New(c.client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{
		TweakListOptions: func(opts *metav1.ListOptions) {
			opts.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		},
	})
	c.ok(err)
	events := &informertest.Recorder[*corev1.Pod]{}
	_, err = inf.AddWatcher(events, informer.WatcherOptions{})
	c.ok(err)
	informertest.Run(t, inf)
	events.Expect(t, "added "+namespace+"/early")

	bind("elsewhere", "other-node")
	bind("here", node)
	events.Expect(t, "added "+namespace+"/here")
	// A Pod on a node is deleted twice: its kubelet ends it, and then deletes it without a grace period.
	c.ok(pods.Delete(c.ctx, "early", metav1.DeleteOptions{}))
	events.Expect(t, "updated "+namespace+"/early")
	c.ok(pods.Delete(c.ctx, "early", *metav1.NewDeleteOptions(0)))
	events.Expect(t, "updated "+namespace+"/early", "deleted "+namespace+"/early")
	bind("waiting", node)
	events.Expect(t, "added "+namespace+"/waiting")
	events.Expect(t)
	if err := events.Err(); err != nil {
		t.Error(err)
	}
}
