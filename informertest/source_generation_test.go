package informertest_test

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// gadget is a custom resource with a Go type of its own, whose desired state is not called spec.
type gadget struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Wish   string
	Since  metav1.Time
	Status string
}

func (g *gadget) DeepCopyObject() runtime.Object {
	c := *g
	g.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// generationsOf creates obj, makes the changes one after the other, and returns the generations.
func generationsOf[T informer.Object](t *testing.T, obj T, changes ...func(T)) (got []int64) {
	t.Helper()
	obj.SetName("a")
	src := informertest.NewSource(obj)
	key := types.NamespacedName{Name: "a"}
	got = append(got, must(src.Get(key)).GetGeneration())
	for _, change := range changes {
		next := must(src.Get(key))
		change(next)
		stored := must(src.Update(next))
		if again := must(src.Get(key)); again.GetGeneration() != stored.GetGeneration() {
			t.Errorf("%T: Update returned generation %d, Get %d", obj, stored.GetGeneration(), again.GetGeneration())
		}
		got = append(got, stored.GetGeneration())
	}
	return got
}

func wantGenerations(t *testing.T, what string, got []int64, want ...int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got generations %v, want %v", what, got, want)
	}
}

func TestTheGenerationRisesOnlyWithTheDesiredState(t *testing.T) {
	wantGenerations(t, "a Pod", generationsOf(t, &corev1.Pod{},
		func(p *corev1.Pod) { p.Spec.NodeName = "n" },
		func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning },
		func(p *corev1.Pod) {
			p.Labels, p.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b"}
		},
		func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{} }, // as good as none
		func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "m", corev1.PodFailed },
		func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) },
		func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = ptr.To[int64](1) },
	), 1, 2, 2, 2, 2, 3, 4, 4)
	wantGenerations(t, "a Deployment", generationsOf(t, &appsv1.Deployment{},
		func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](3) },
		func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} },
		func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} },
	), 1, 2, 2, 3)
	wantGenerations(t, "an unstructured custom resource", generationsOf(t, widget("a", "red"),
		func(u *unstructured.Unstructured) { u.Object["spec"] = map[string]any{"color": "blue"} },
		func(u *unstructured.Unstructured) { u.Object["status"] = map[string]any{"ready": true} },
		func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b"}) },
		func(u *unstructured.Unstructured) { u.Object["extra"] = "field" },
	), 1, 2, 2, 2, 3)
	wantGenerations(t, "a custom resource", generationsOf(t, &gadget{},
		func(g *gadget) { g.Wish = "more" },
		func(g *gadget) { g.Status = "busy" },
	), 1, 2, 2)
	wantGenerations(t, "an unstructured Deployment", generationsOf(t, asUnstructured(t, &appsv1.Deployment{}),
		func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"a": "b"}) },
	), 1, 2)
}

// A client that decodes and encodes an object drops parts of a second, and may make an integer of a float.
func TestTheSameJSONIsNoChangeOfTheDesiredState(t *testing.T) {
	g := &gadget{Since: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))}
	wantGenerations(t, "a part of a second", generationsOf(t, g, func(g *gadget) { g.Since = metav1.NewTime(g.Since.Truncate(time.Second)) }), 1, 1)
	u := widget("a", "red")
	u.Object["spec"] = map[string]any{"size": 1.0}
	wantGenerations(t, "a float", generationsOf(t, u,
		func(u *unstructured.Unstructured) { u.Object["spec"] = map[string]any{"size": int64(1)} },
		func(u *unstructured.Unstructured) { u.Object["spec"] = map[string]any{"size": 1.5} },
	), 1, 1, 2)
	src := informertest.NewSource(g)
	other := must(src.Get(types.NamespacedName{Name: "a"}))
	other.Since = metav1.NewTime(g.Since.Truncate(time.Second))
	for op, got := range map[string]*gadget{"Update": must(src.Update(other)), "Apply": src.Apply(other)} {
		if got.Generation != 1 || src.ResourceVersion() != "1001" {
			t.Errorf("%s: generation %d, source at %s", op, got.Generation, src.ResourceVersion())
		}
	}
}

func TestKindsWithoutGenerationsHaveNoneInASource(t *testing.T) {
	wantGenerations(t, "a ConfigMap", generationsOf(t, &corev1.ConfigMap{}, func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "b"} }), 0, 0)
	wantGenerations(t, "a Node", generationsOf(t, &corev1.Node{}, func(n *corev1.Node) { n.Spec.Unschedulable = true }), 0, 0)
	wantGenerations(t, "an unstructured Service", generationsOf(t, asUnstructured(t, &corev1.Service{}),
		func(u *unstructured.Unstructured) { u.Object["spec"] = map[string]any{"type": "NodePort"} }), 0, 0)
}

func TestAHigherGenerationOfTheTestIsKept(t *testing.T) {
	first := &corev1.Pod{}
	first.Generation = 5
	wantGenerations(t, "updates", generationsOf(t, first,
		func(p *corev1.Pod) { p.Spec.NodeName = "n"; p.Generation++ }, // as tests do that count themselves
		func(p *corev1.Pod) { p.Generation = 10 },
		func(p *corev1.Pod) { p.Generation = 2 },
		func(p *corev1.Pod) { p.Spec.NodeName = "m"; p.Generation = -1 },
	), 5, 6, 10, 10, 11)

	// Apply gets objects that the test has made, not read.
	src := informertest.NewSource(podOn("n", "a"))
	if got := src.Apply(podOn("m", "a")).Generation; got != 2 {
		t.Errorf("generation %d after another Apply, want 2", got)
	}
	version := src.ResourceVersion()
	if got := src.Apply(podOn("m", "a")); got.Generation != 2 || src.ResourceVersion() != version {
		t.Errorf("an Apply without a difference led to generation %d and version %s", got.Generation, src.ResourceVersion())
	}
	must(src.Delete(keyOf("a")))
	if got := src.Apply(podOn("n", "a")).Generation; got != 1 {
		t.Errorf("an object that was created again has generation %d", got)
	}
}

func TestAClientsetWritesGenerations(t *testing.T) {
	src := informertest.NewSource[*appsv1.Deployment]()
	client := fake.NewClientset()
	src.Serve(&client.Fake, "deployments", &appsv1.DeploymentList{})
	deployments := client.AppsV1().Deployments("ns")
	d := must(deployments.Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}))
	d.Status.ObservedGeneration = d.Generation
	d = must(deployments.UpdateStatus(t.Context(), d, metav1.UpdateOptions{}))
	d.Spec.Paused = true
	updated := must(deployments.Update(t.Context(), d, metav1.UpdateOptions{}))
	got := []int64{d.Generation, d.Status.ObservedGeneration, updated.Generation}
	for _, c := range []struct {
		data         string
		subresources []string
	}{
		{`{"metadata":{"labels":{"a":"b"}}}`, nil},
		{`{"spec":{"replicas":3}}`, nil},
		{`{"status":{"readyReplicas":3}}`, []string{"status"}},
		{`{"metadata":{"generation":9}}`, nil},
	} {
		d = must(deployments.Patch(t.Context(), "a", merge, []byte(c.data), metav1.PatchOptions{}, c.subresources...))
		got = append(got, d.Generation)
	}
	wantGenerations(t, "a Deployment", got, 1, 1, 2, 2, 3, 3, 3)
	if *d.Spec.Replicas != 3 || d.Status.ReadyReplicas != 3 {
		t.Errorf("the patches led to %+v", d)
	}
}
