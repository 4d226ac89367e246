package informertest_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// selectsByFields checks that a LIST with each of the selectors returns the first object of the
// source and not the second, which has no fields, and that the opposite returns only the second.
func selectsByFields[T informer.Object](t *testing.T, obj, empty T, selectors ...string) {
	t.Helper()
	obj.SetName("chosen")
	empty.SetName("other")
	selectsIn(t, informertest.NewSource(obj, empty), selectors...)
	selectsIn(t, informertest.NewSource(asUnstructured(t, obj), asUnstructured(t, empty)), selectors...)
}

func selectsIn[T informer.Object](t *testing.T, src *informertest.Source[T], selectors ...string) {
	t.Helper()
	for _, selector := range selectors {
		if got := namesBy(t, src, selector); got != "chosen" {
			t.Errorf("%T: %s selects %q", src, selector, got)
		}
		if got := namesBy(t, src, strings.Replace(selector, "=", "!=", 1)); got != "other" {
			t.Errorf("%T: the opposite of %s selects %q", src, selector, got)
		}
	}
}

func namesBy[T informer.Object](t *testing.T, src *informertest.Source[T], selector string) string {
	t.Helper()
	list, err := src.List(metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		t.Fatalf("LIST with %s: %v", selector, err)
	}
	var names []string
	for _, item := range list.(*metav1.List).Items {
		names = append(names, item.Object.(T).GetName())
	}
	return strings.Join(names, " ")
}

func asUnstructured(t *testing.T, obj informer.AnyObject) *unstructured.Unstructured {
	t.Helper()
	kinds, _, err := fakeScheme.ObjectKinds(obj)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: must(runtime.DefaultUnstructuredConverter.ToUnstructured(obj))}
	u.SetGroupVersionKind(kinds[0])
	return u
}

var fakeScheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := fake.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return scheme
}()

func TestFieldSelectorsSelectAsTheAPIServerDoes(t *testing.T) {
	selectsByFields(t,
		&corev1.Pod{
			Spec: corev1.PodSpec{
				NodeName: "n1", RestartPolicy: corev1.RestartPolicyNever, SchedulerName: "mine", ServiceAccountName: "robot", HostNetwork: true,
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", NominatedNodeName: "n2"},
		}, &corev1.Pod{},
		"spec.nodeName=n1", "spec.restartPolicy=Never", "spec.schedulerName=mine", "spec.serviceAccountName=robot",
		"spec.hostNetwork=true", "status.phase=Running", "status.podIP=10.0.0.1", "status.nominatedNodeName=n2",
		"spec.host=n1", "metadata.name=chosen")
	selectsByFields(t, &corev1.Pod{}, &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}}, "spec.hostNetwork=false")
	selectsByFields(t, &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, &corev1.Node{}, "spec.unschedulable=true")
	selectsByFields(t, &corev1.Node{}, &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, "spec.unschedulable=false")
	selectsByFields(t, &corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}, &corev1.Namespace{}, "status.phase=Active")
	selectsByFields(t, &corev1.Secret{Type: corev1.SecretTypeTLS}, &corev1.Secret{}, "type=kubernetes.io/tls")
	selectsByFields(t, &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "None", Type: corev1.ServiceTypeNodePort}}, &corev1.Service{},
		"spec.clusterIP=None", "spec.type=NodePort")
	selectsByFields(t, &corev1.ReplicationController{Status: corev1.ReplicationControllerStatus{Replicas: 3}}, &corev1.ReplicationController{},
		"status.replicas=3")
	selectsByFields(t, &appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{Replicas: 3}}, &appsv1.ReplicaSet{}, "status.replicas=3")
	selectsByFields(t, &appsv1.ReplicaSet{}, &appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{Replicas: 3}}, "status.replicas=0")
	selectsByFields(t, &batchv1.Job{Status: batchv1.JobStatus{Succeeded: 2}}, &batchv1.Job{}, "status.successful=2")
	selectsByFields(t, &batchv1.Job{}, &batchv1.Job{Status: batchv1.JobStatus{Succeeded: 2}}, "status.successful=0")
	about := corev1.ObjectReference{
		Kind: "Pod", Namespace: "ns", Name: "web", UID: "u", APIVersion: "v1", ResourceVersion: "7", FieldPath: "spec.containers{c}",
	}
	selectsByFields(t,
		&corev1.Event{InvolvedObject: about, Reason: "Killing", Type: "Normal", Source: corev1.EventSource{Component: "kubelet"}, ReportingController: "me"},
		&corev1.Event{},
		"involvedObject.kind=Pod", "involvedObject.namespace=ns", "involvedObject.name=web", "involvedObject.uid=u", "involvedObject.apiVersion=v1",
		"involvedObject.resourceVersion=7", "involvedObject.fieldPath=spec.containers{c}", "reason=Killing", "type=Normal", "source=kubelet",
		"reportingComponent=me")
	selectsByFields(t, &corev1.Event{ReportingController: "me"}, &corev1.Event{}, "source=me")
	selectsByFields(t, &eventsv1.Event{Regarding: about, Reason: "Killing", Type: "Normal", ReportingController: "me"}, &eventsv1.Event{},
		"regarding.kind=Pod", "regarding.name=web", "reason=Killing", "type=Normal", "reportingController=me")
	selectsByFields(t, &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "s"}},
		&certificatesv1.CertificateSigningRequest{}, "spec.signerName=s")
	selectsByFields(t, &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{NodeName: ptr.To("n1"), Driver: "d"}},
		&resourcev1.ResourceSlice{}, "spec.nodeName=n1", "spec.driver=d")
}

func TestAnUnknownFieldIsABadRequest(t *testing.T) {
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	for _, c := range []struct {
		name, selector, message string
		list                    func(metav1.ListOptions) (runtime.Object, error)
	}{
		{"of a Pod", "spec.hostIP=a", "field label not supported: spec.hostIP", informertest.NewSource(namedPod("a", "")).List},
		{"without any Pod", "spec.hostIP=a", "field label not supported: spec.hostIP", informertest.NewSource[*corev1.Pod]().List},
		{"of a Node, which has no namespace", "metadata.namespace=a", "field label not supported: metadata.namespace", informertest.NewSource[*corev1.Node]().List},
		{
			"of a ConfigMap", "data.value=1",
			`"data.value" is not a known field selector: only "metadata.name", "metadata.namespace"`, informertest.NewSource(configMap("a", "1")).List,
		},
		{"of a custom resource", "spec.size=1", "field label not supported: spec.size", informertest.NewSource(widget("a", "red")).List},
		{
			"of a Pod of which only the metadata is known", "spec.nodeName=a",
			`"spec.nodeName" is not a known field selector: only "metadata.name", "metadata.namespace"`, informertest.NewSource(metadata).List,
		},
	} {
		_, err := c.list(metav1.ListOptions{FieldSelector: c.selector})
		if !apierrors.IsBadRequest(err) || err.Error() != c.message {
			t.Errorf("%s: got error %v, want %s", c.name, err, c.message)
		}
	}
	_, err := informertest.NewSource(namedPod("a", "")).Watch(metav1.ListOptions{FieldSelector: "spec.hostIP!=a"})
	wantError(t, err, apierrors.IsBadRequest)
}

func widget(name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"color": color, "size": int64(len(name)), "round": name == "a"},
	}}
}

func TestCustomResourcesHaveTheSelectableFieldsThatATestGives(t *testing.T) {
	src := informertest.NewSource(widget("a", "red"), widget("bb", "blue"))
	src.SetSelectableFields("spec.color", ".spec.size", "spec.round", "spec.absent")
	for selector, want := range map[string]string{
		"spec.color=red":                    "a",
		"spec.size=2":                       "bb",
		"spec.round=true":                   "a",
		"spec.absent=":                      "a bb",
		"metadata.name=bb,spec.color!=red":  "bb",
		"metadata.name=bb,spec.color=red":   "",
		"metadata.namespace=,spec.size!=10": "a bb",
	} {
		if got := namesBy(t, src, selector); got != want {
			t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
	src.SetSelectableFields("spec.size")
	_, err := src.List(metav1.ListOptions{FieldSelector: "spec.color=red"})
	wantError(t, err, apierrors.IsBadRequest)
	// The fields of the type remain.
	pods := informertest.NewSource(namedPod("a", ""))
	pods.SetSelectableFields("spec.hostname")
	if got := namesBy(t, pods, "spec.nodeName=,spec.hostname=,status.podIPs="); got != "a" {
		t.Errorf("selected %q", got)
	}
}

func podOn(node, name string) *corev1.Pod {
	pod := namedPod(name, "")
	pod.Spec.NodeName = node
	return pod
}
