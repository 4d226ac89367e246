package indexes_test

import (
	"encoding/json"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/indexes"
)

// Inline is embedded without a name, Hidden behind a pointer, and Name of both is hidden by that of custom.
type Inline struct {
	Name  string `json:"name"`
	Level int8   `json:"level"`
}

type Hidden struct {
	Name string `json:"name"`
	Deep string `json:"deep"`
}

type custom struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Inline            `json:",inline"`
	*Hidden
	Name    string             `json:"name"`
	Port    intstr.IntOrString `json:"port"`
	Size    *resource.Quantity `json:"size,omitempty"`
	Factor  float32            `json:"factor"`
	Any     any                `json:"any"`
	Nested  [][]uint           `json:"nested"`
	Data    map[string][]byte  `json:"data"`
	Raw     json.RawMessage    `json:"raw,omitempty"`
	Secret  string             `json:"-"`
	Call    func()             `json:"call"`
	Empty   string             `json:"empty"`
	Zero    Inline             `json:"zero,omitzero"`
	Numbers map[int]string     `json:"numbers"`
	Plain   bool
	private string //nolint:unused // JSON does not have it, so a path must not
}

func (c *custom) DeepCopyObject() runtime.Object { panic("no test copies it") }

func TestPathsHaveTheValuesOfTheJSON(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"a.b/c": "x", "app": "y"}}}
	pod.CreationTimestamp = metav1.Unix(0, 0)
	pod.Spec = corev1.PodSpec{NodeName: "n", Priority: ptr.To[int32](-5), Containers: []corev1.Container{
		{Image: "two", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}, {Image: "one"}, {Image: "two"},
	}}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("500m")}
	size := resource.MustParse("1Gi")
	own := &custom{
		Name: "outer", Inline: Inline{"inner", 3}, Port: intstr.FromInt32(8), Size: &size, Factor: 0.1, Raw: json.RawMessage(`{"a":1}`),
		Any: map[string]any{"list": []any{"b", nil, true, 2.5, int64(7)}, "pod": pod}, Nested: [][]uint{{2}, {1, 2}}, Data: map[string][]byte{"k": []byte("v")},
	}
	for _, tc := range []struct {
		obj  informer.AnyObject
		path string
		want []string
	}{
		{pod, "metadata.name", []string{"web"}},
		{pod, "kind", nil},
		{pod, "spec.nodeName", []string{"n"}},
		{pod, "spec['nodeName']", []string{"n"}},
		{pod, "spec.containers.image", []string{"one", "two"}},
		{pod, "spec.containers.ports.containerPort", []string{"80"}},
		{pod, "spec.containers.resources.requests.cpu", []string{"500m"}},
		{pod, "spec.containers.name", []string{""}},
		{pod, "spec.priority", []string{"-5"}},
		{pod, "spec.hostNetwork", nil},
		{pod, "spec.hostname", nil},
		{pod, "spec.securityContext.runAsUser", nil},
		{pod, "metadata.labels['a.b/c']", []string{"x"}},
		{pod, "metadata.labels.app", []string{"y"}},
		{pod, "metadata.labels.none", nil},
		{pod, "metadata.annotations.none", nil},
		{pod, "metadata.creationTimestamp", []string{"1970-01-01T00:00:00Z"}},
		{pod, "metadata.deletionTimestamp", nil},
		{own, "name", []string{"outer"}},
		{own, "level", []string{"3"}},
		{own, "deep", nil},
		{&custom{Hidden: &Hidden{"", "down"}}, "deep", []string{"down"}},
		{own, "port", []string{"8"}},
		{&custom{Port: intstr.FromString("http")}, "port", []string{"http"}},
		{own, "size", []string{"1Gi"}},
		{own, "factor", []string{"0.1"}},
		{own, "nested", []string{"1", "2"}},
		{own, "data.k", []string{"dg=="}},
		{own, "any.list", []string{"2.5", "7", "b", "true"}},
		{own, "any.pod.spec.nodeName", []string{"n"}},
		{own, "any.none.x", nil},
		{own, "zero.name", nil},
		{own, "Plain", []string{"false"}},
		{own, "empty", []string{""}},
		{&metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}, "metadata.labels.app", []string{"y"}},
		{(*corev1.Pod)(nil), "spec.nodeName", nil},
		{(*unstructured.Unstructured)(nil), "spec.nodeName", nil},
		{&unstructured.Unstructured{}, "spec.nodeName", nil},
		{nil, "spec.nodeName", nil},
		{&unstructured.Unstructured{}, strings.Repeat("a.", 999) + "a", nil},
	} {
		f, err := indexes.ByField[informer.AnyObject](tc.path)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time, the type is known
			if got, err := f(tc.obj); err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%T %.60s: %q, %v, want %q", tc.obj, tc.path, got, err, tc.want)
			}
		}
		if p, ok := tc.obj.(*corev1.Pod); ok {
			typed, err := indexes.ByField[*corev1.Pod](tc.path)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := typed(p); err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("typed, %s: %q, %v, want %q", tc.path, got, err, tc.want)
			}
		}
	}
}

func byField[T metav1.Object](obj T) func(path string) error {
	return func(path string) error {
		f, err := indexes.ByField[T](path)
		if err == nil {
			_, err = f(obj)
		}
		return err
	}
}

func TestPathsThatCannotBeUsedAreErrors(t *testing.T) {
	pod, own := byField[*corev1.Pod](nil), byField[*custom](nil) // nil: the errors are those of ByField
	content := map[string]any{"a": map[string]any{"b": []any{"x"}}, "n": int64(1)}
	loose, either := byField(&unstructured.Unstructured{Object: content}), byField[informer.AnyObject](&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}})
	raw := byField[informer.AnyObject](&custom{Raw: json.RawMessage(`{"a":1}`)})
	for _, tc := range []struct {
		of         func(string) error
		path, want string
	}{
		{pod, "", `path "": part 1, at "."`},
		{loose, "", `path "": part 1`},
		{either, "..", `path "..": part 1`},
		{pod, ".spec.nodeName", "part 1, at \"..spec"},
		{pod, "spec.", `part 2, at "."`},
		{pod, "spec..nodeName", "part 2, at"},
		{pod, "spec.containers[0].image", `part 3, at "[0].image"`},
		{pod, "metadata.labels['a", `part 3, at "['a"`},
		{pod, "metadata.labels['a']b", `part 4, at "b"`},
		{pod, "metadata.labels['']", `part 3, at "['']"`},
		{pod, "nothing", `indexes: path "nothing": the object (v1.Pod) has no field "nothing", only apiVersion, kind, metadata, spec, status`},
		{pod, "spec.nodename", `path "spec.nodename": spec (v1.PodSpec) has no field "nodename", only activeDeadlineSeconds, `},
		{pod, "status.podIPs.ips", `status.podIPs (v1.PodIP) has no field "ips", only ip`},
		{pod, "spec", "spec (v1.PodSpec) is not a single value: the path must go on with one of its fields, active"},
		{pod, "spec.containers", "spec.containers (v1.Container) is not a single value"},
		{pod, "metadata.labels", "metadata.labels (map[string]string) is a map: the path must go on with a key"},
		{pod, "metadata.labels.a.b/c", `metadata.labels.a (string) is a single value without a part "b/c"; a key that contains dots is written ['a.b']`},
		{pod, "metadata.creationTimestamp.seconds", "metadata.creationTimestamp (v1.Time) encodes itself, so that no path leads into it"},
		{pod, "spec.nodeName" + strings.Repeat(".a", 998), `without a part "a"`},
		{own, "Secret", `has no field "Secret"`},
		{own, "private", `has no field "private"`},
		{own, "call", "of a type that no path can use"},
		{own, "numbers.1", "of a type that no path can use"},
		{loose, "a", `path "a": a (map[string]interface {}) is a map`},
		{loose, "a.b.c", `a.b (string) is a single value without a part "c"`},
		{loose, "n.x", "n (int64) is a single value"},
		{either, "spec.nothing", `spec (v1.PodSpec) has no field "nothing"`},
		{raw, "raw", "is a map"},
	} {
		for range 2 {
			if err := tc.of(tc.path); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%.60q: got %v, want %q in it", tc.path, err, tc.want)
			}
		}
	}
}

// leaves adds the texts of all single values in JSON to found, by path, unless no path can name a key.
func leaves(x any, path string, found map[string][]string) {
	switch x := x.(type) {
	case map[string]any:
		for name, value := range x {
			if name == "" || strings.Contains(name, "']") {
				continue
			}
			leaves(value, path+"['"+name+"']", found)
		}
	case []any:
		for _, e := range x {
			leaves(e, path, found)
		}
	case string:
		found[path] = append(found[path], x)
	case nil:
	default: // a number or a bool
		text, _ := json.Marshal(x)
		found[path] = append(found[path], string(text))
	}
}

func TestAFilledPodIsReadAsItsJSON(t *testing.T) {
	seed := rand.Int63()
	filler := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs).MaxDepth(14).NumElements(1, 3)
	paths := 0
	for range 20 {
		pod, loose, found := &corev1.Pod{}, &unstructured.Unstructured{}, map[string][]string{}
		filler.Fill(pod)
		pod.Labels, pod.ManagedFields = map[string]string{"a.b/c": "x"}, nil
		data, err := json.Marshal(pod)
		if err == nil {
			err = utiljson.Unmarshal(data, &loose.Object)
		}
		if err != nil {
			t.Fatal(err)
		}
		leaves(loose.Object, "", found)
		for path, want := range found {
			path = path[2:strings.Index(path, "']")] + path[strings.Index(path, "']")+2:]
			slices.Sort(want)
			want, paths = slices.Compact(want), paths+1
			typed, err := indexes.ByField[*corev1.Pod](path)
			if err != nil {
				t.Fatal(err)
			}
			dynamic, _ := indexes.ByField[*unstructured.Unstructured](path)
			got, err := typed(pod)
			got2, err2 := dynamic(loose)
			if diff := cmp.Diff([][]string{want, want}, [][]string{got, got2}); diff != "" || err != nil || err2 != nil {
				t.Errorf("seed %d, %s: %v, %v (-want +got, typed and unstructured):\n%s", seed, path, err, err2, diff)
			}
		}
	}
	if paths < 1000 {
		t.Errorf("only %d paths were compared", paths)
	}
}

func TestByLabelAndByOwner(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "empty": ""}, OwnerReferences: []metav1.OwnerReference{
		{UID: "1"}, {UID: "2", Controller: ptr.To(true)}, {UID: "1", Controller: ptr.To(false)},
	}}}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		t.Fatal(err)
	}
	functions := informer.Indexers[informer.AnyObject]{
		"app": indexes.ByLabel[informer.AnyObject]("app"), "empty": indexes.ByLabel[informer.AnyObject]("empty"), "": indexes.ByLabel[informer.AnyObject](""),
		"owner": indexes.ByOwner[informer.AnyObject], "controller": indexes.ByController[informer.AnyObject],
	}
	got := map[string][]string{}
	for _, obj := range []informer.AnyObject{pod, &unstructured.Unstructured{Object: content}, (*corev1.Pod)(nil), nil, &corev1.Pod{}} {
		for name, f := range functions {
			values, err := f(obj)
			if err != nil {
				t.Error(err)
			}
			got[name] = append(got[name], values...)
		}
	}
	want := map[string][]string{"app": {"web", "web"}, "empty": {"", ""}, "": nil, "owner": {"1", "2", "1", "2"}, "controller": {"2", "2"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
