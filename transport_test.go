package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

type pods = gentype.ClientWithList[*corev1.Pod, *corev1.PodList]

// generated is a client as client-gen makes it.
type generated struct{ *pods }

// filtering is such a client with a List of its own.
type filtering struct{ *pods }

func (f *filtering) List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	list, err := f.pods.List(ctx, opts)
	if err == nil {
		list.Items = nil
	}
	return list, err
}

// renaming is a client around another.
type renaming struct{ typed.PodInterface }

// holding has a generated client that is not its first field.
type holding struct {
	name string
	*pods
}

// Only a client that delivers objects as they come from the server is bypassed.
func TestClientsThatMayChangeAnswersAreNotBypassed(t *testing.T) {
	config := &rest.Config{Host: "http://localhost"}
	clientset := kubernetes.NewForConfigOrDie(config)
	client := gentype.NewClientWithList("pods", clientset.CoreV1().RESTClient(), scheme.ParameterCodec, "",
		func() *corev1.Pod { return &corev1.Pod{} }, func() *corev1.PodList { return &corev1.PodList{} })
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	untyped := dynamic.NewForConfigOrDie(config).Resource(resource)
	for name, test := range map[string]struct{ got, want bool }{
		"clientset":             {framingOf[*corev1.PodList](clientset.CoreV1().Pods("")).OK(), true},
		"client-gen":            {framingOf[*corev1.PodList](&generated{client}).OK(), true},
		"dynamic":               {framingOf[*unstructured.UnstructuredList](untyped).OK(), true},
		"dynamic, a namespace":  {framingOf[*unstructured.UnstructuredList](untyped.Namespace("a")).OK(), true},
		"metadata":              {framingOf[*metav1.PartialObjectMetadataList](metadata.NewForConfigOrDie(config).Resource(resource)).OK(), true},
		"a List of its own":     {framingOf[*corev1.PodList](&filtering{client}).OK(), false},
		"around an interface":   {framingOf[*corev1.PodList](&renaming{clientset.CoreV1().Pods("")}).OK(), false},
		"around a dynamic one":  {framingOf[*unstructured.UnstructuredList](struct{ dynamic.ResourceInterface }{untyped}).OK(), false},
		"with a field before":   {framingOf[*corev1.PodList](&holding{"", client}).OK(), false},
		"gentype's own":         {framingOf[*corev1.PodList](client).OK(), true},
		"a value":               {framingOf[*corev1.PodList](generated{client}).OK(), false},
		"nil":                   {framingOf[*corev1.PodList]((*generated)(nil)).OK(), false},
		"a fake":                {framingOf[*corev1.PodList](fake.NewClientset().CoreV1().Pods("")).OK(), false},
		"a dynamic fake":        {framingOf[*unstructured.UnstructuredList](dynamicfake.NewSimpleDynamicClient(scheme.Scheme).Resource(resource)).OK(), false},
		"a list of other items": {framingOf[*metav1.List](&generated{client}).OK(), false},
	} {
		if test.got != test.want {
			t.Errorf("%s: %v, want %v", name, test.got, test.want)
		}
	}
}

// answers is a server without objects.
type answers struct{}

func (answers) RoundTrip(req *http.Request) (*http.Response, error) {
	return nil, context.DeadlineExceeded
}

func TestTransportIsTurnedOffByTheEnvironment(t *testing.T) {
	if _, off := Transport(answers{}).(answers); off {
		t.Error("off without the variable")
	}
	t.Setenv("INFORMER_DECODE", "client")
	if _, off := Transport(answers{}).(answers); !off {
		t.Error("on with the variable")
	}
}

// Health shows the first ten keys. It may be called often, so it does not copy and sort all of them.
func TestManyObjectsThatFailAreCountedWithoutACopy(t *testing.T) {
	r := newReports(func(context.Context, error) {})
	if n, keys := r.undecodable(3); n != 0 || keys != nil {
		t.Errorf("at first: %d, %q", n, keys)
	}
	for i := range 21 {
		key := fmt.Sprintf("key-%04d", i*7_919%10_000)
		r.failed(t.Context(), "decode", key, 1, errors.New("no"))
		if n, keys := r.undecodable(3); n != i+1 || len(keys) != min(3, i+1) || !slices.IsSorted(keys) {
			t.Fatalf("after %d: %d, %q", i+1, n, keys)
		}
	}
	for i := range 10_000 {
		r.failed(t.Context(), "decode", fmt.Sprintf("key-%04d", i), 1, errors.New("no"))
	}
	if n, keys := r.undecodable(3); n != 10_000 || !slices.Equal(keys, []string{"key-0000", "key-0001", "key-0002"}) {
		t.Errorf("%d, %q", n, keys)
	}
	if allocs := testing.AllocsPerRun(5, func() { r.undecodable(3) }); allocs > 20 {
		t.Errorf("%v allocations", allocs)
	}
}
