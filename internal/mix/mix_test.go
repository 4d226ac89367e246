package mix_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/customcacheinformer/informer/internal/mix"
	"github.com/customcacheinformer/informer/internal/testkit"
)

const pods = 4000

func ownerOf(p *corev1.Pod) metav1.OwnerReference { return p.OwnerReferences[0] }

func statuses(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

var access = regexp.MustCompile(`kube-api-access-\w+`)

// accessNames returns the name of the volume with the access to the API, from each place that has
// it.
func accessNames(p *corev1.Pod) []string {
	return access.FindAllString(p.Spec.String()+p.Status.String(), -1)
}

// times returns every time in a Pod.
func times(p *corev1.Pod) (all []string) {
	note := func(t metav1.Time) { all = append(all, t.String()) }
	note(p.CreationTimestamp)
	note(*p.Status.StartTime)
	for _, c := range p.Status.Conditions {
		note(c.LastTransitionTime)
	}
	for _, s := range statuses(p) {
		switch {
		case s.State.Running != nil:
			note(s.State.Running.StartedAt)
		case s.State.Terminated != nil:
			note(s.State.Terminated.StartedAt)
			note(s.State.Terminated.FinishedAt)
		}
	}
	for _, f := range p.ManagedFields {
		note(*f.Time)
	}
	return all
}

func TestPodsOfOneOwnerDifferWhereRealPodsDo(t *testing.T) {
	m := mix.New(1, pods)
	checked := map[string]int{}
	b := m.Pod(0, 0)
	for i := range pods - 1 {
		a := b
		b = m.Pod(i+1, 0)
		if ownerOf(a).UID != ownerOf(b).UID {
			continue
		}
		kind := ownerOf(a).Kind
		checked[kind]++
		differ := func(what, x, y string) {
			t.Helper()
			if x == y {
				t.Errorf("Pods %d and %d of a %s have the same %s: %s", i, i+1, kind, what, x)
			}
		}
		differ("name", a.Name, b.Name)
		differ("UID", string(a.UID), string(b.UID))
		differ("version", a.ResourceVersion, b.ResourceVersion)
		differ("Pod IP", a.Status.PodIP, b.Status.PodIP)
		differ("list of Pod IPs", a.Status.PodIPs[0].IP, b.Status.PodIPs[0].IP)
		differ("managed fields of kubelet", a.ManagedFields[1].FieldsV1.GetRawString(), b.ManagedFields[1].FieldsV1.GetRawString())
		for c, s := range statuses(a) {
			differ("container ID", s.ContainerID, statuses(b)[c].ContainerID)
		}
		x, y := accessNames(a), accessNames(b)
		differ("volume", x[0], y[0])
		if want := 1 + 2*len(statuses(a)); len(x) != want || len(slices.Compact(x)) != 1 {
			t.Errorf("Pod %d has its volume as %q, want one name in %d places", i, x, want)
		}
		for c, x := range times(a) {
			differ("time", x, times(b)[c])
		}
		if kind == "DaemonSet" {
			differ("node", a.Spec.NodeName, b.Spec.NodeName)
			differ("node affinity", fmt.Sprint(a.Spec.Affinity), fmt.Sprint(b.Spec.Affinity))
		}
		if kind == "StatefulSet" {
			differ("hostname", a.Spec.Hostname, b.Spec.Hostname)
			differ("label", a.Labels["statefulset.kubernetes.io/pod-name"], b.Labels["statefulset.kubernetes.io/pod-name"])
			differ("claim", a.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, b.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
		}
		// Everything that an author writes is the same.
		if a.Spec.Containers[0].Image != b.Spec.Containers[0].Image || !reflect.DeepEqual(a.Spec.Containers[0].Env, b.Spec.Containers[0].Env) ||
			a.ManagedFields[0].FieldsV1.GetRawString() != b.ManagedFields[0].FieldsV1.GetRawString() {
			t.Errorf("Pods %d and %d of a %s are of different templates", i, i+1, kind)
		}
	}
	for _, kind := range []string{"DaemonSet", "ReplicaSet", "StatefulSet"} {
		testkit.AtLeast(t, "pairs of Pods of a "+kind, checked[kind], 50)
	}
}

func TestManagedFieldsHaveTheOwnersUIDAndTheAddresses(t *testing.T) {
	m := mix.New(1, pods)
	for i := 0; i < pods; i += 17 {
		p, of := m.Pod(i, 0), map[string]string{}
		for _, f := range p.ManagedFields {
			raw := f.FieldsV1.GetRawBytes()
			if !json.Valid(raw) {
				t.Fatalf("the fields of %s are no JSON: %s", f.Manager, raw)
			}
			of[f.Manager] = string(raw)
		}
		for manager, keys := range map[string][]string{
			"kube-controller-manager": {fmt.Sprintf(`"k:{\"uid\":\"%s\"}"`, ownerOf(p).UID)},
			"kubelet":                 {fmt.Sprintf(`"k:{\"ip\":\"%s\"}"`, p.Status.HostIP), fmt.Sprintf(`"k:{\"ip\":\"%s\"}"`, p.Status.PodIP)},
		} {
			for _, key := range keys {
				if !strings.Contains(of[manager], key) {
					t.Errorf("the fields of %s lack %s: %s", manager, key, of[manager])
				}
			}
		}
	}
}

func TestTheMixIsThatOfALargeCluster(t *testing.T) {
	const large = 100_000
	m := mix.New(1, large)
	within := func(what string, got, least, most int) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: %d, want %d to %d", what, got, least, most)
		}
	}
	within("owners", m.Owners(), 4500, 5500)
	within("nodes", m.Nodes(), 2000, 2000)
	kinds, alone, restarted, sampled := map[string]int{}, 0, 0, 0
	var wire, asJSON int
	for i := 0; i < large; i += 211 {
		p := m.Pod(i, 0)
		sampled++
		kinds[ownerOf(p).Kind]++
		if len(p.Spec.Containers) == 1 && len(p.Spec.InitContainers) == 0 {
			alone++
		}
		if p.Status.ContainerStatuses[0].RestartCount > 0 {
			restarted++
		}
		within("variables", len(p.Spec.Containers[0].Env), 7, 18)
		text, err := json.Marshal(p)
		testkit.Must(t, err)
		wire, asJSON = wire+p.Size(), asJSON+len(text)
	}
	within("bytes of a Pod as protobuf", wire/sampled, 8000, 9000)
	within("bytes of a Pod as JSON", asJSON/sampled, 11_500, 13_500)
	within("percent of Pods without company", 100*alone/sampled, 55, 70)
	within("percent of Pods that were restarted", 100*restarted/sampled, 5, 15)
	within("percent of DaemonSets", 100*kinds["DaemonSet"]/sampled, 15, 17)
	within("kinds of owners", len(kinds), 4, 4)
}

func TestAnUpdateChangesTheFieldsThatKubeletWrites(t *testing.T) {
	m := mix.New(1, pods)
	for i := 0; i < pods; i += 111 {
		before := m.Pod(i, 0)
		for updates := range 3 {
			after := m.Pod(i, updates+1)
			restarts := func(p *corev1.Pod) (sum int) {
				for _, s := range p.Status.ContainerStatuses {
					sum += int(s.RestartCount)
				}
				return sum
			}
			switch {
			case after.UID != before.UID || after.Name != before.Name || !reflect.DeepEqual(after.Spec, before.Spec):
				t.Fatalf("update %d of Pod %d is of another Pod, or has another spec", updates+1, i)
			case after.ResourceVersion <= before.ResourceVersion:
				t.Errorf("version %s after %s", after.ResourceVersion, before.ResourceVersion)
			case restarts(after) != restarts(before)+1:
				t.Errorf("%d restarts after %d", restarts(after), restarts(before))
			case !before.ManagedFields[1].Time.Before(after.ManagedFields[1].Time):
				t.Error("the time of kubelet's fields is the same")
			}
			before = after
		}
	}
}

// objects returns one object of each kind.
func objects(m *mix.Mix, i int) map[string]interface{ Marshal() ([]byte, error) } {
	return map[string]interface{ Marshal() ([]byte, error) }{
		"Pod": m.Pod(i, 0), "updated Pod": m.Pod(i, 2), "EndpointSlice": m.EndpointSlice(i), "ConfigMap": m.ConfigMap(i), "Node": m.Node(i), "stranger": m.Stranger(i),
	}
}

func TestNoTwoPodsHaveOneName(t *testing.T) {
	pods := testkit.LongOrShort(100_000, 10_000)
	m, names := mix.New(1, pods), map[string]bool{}
	for i := range pods {
		p := m.Pod(i, 0)
		names[p.Namespace+"/"+p.Name] = true
	}
	if len(names) != pods {
		t.Errorf("%d Pods have %d names", pods, len(names))
	}
}

func TestASeedAlwaysMakesTheSameObjects(t *testing.T) {
	a, b, c := mix.New(1, pods), mix.New(1, pods), mix.New(2, pods)
	for i := pods - 1; i >= 0; i -= 311 { // the order makes no difference
		objects(b, pods-1-i)
		once, again, others := objects(a, i), objects(b, i), objects(c, i)
		for kind, obj := range once {
			x, err := obj.Marshal()
			testkit.Must(t, err)
			y, _ := again[kind].Marshal()
			z, _ := others[kind].Marshal()
			if !bytes.Equal(x, y) {
				t.Errorf("%s %d is not the same", kind, i)
			}
			if bytes.Equal(x, z) {
				t.Errorf("%s %d does not depend on the seed", kind, i)
			}
		}
	}
}

func TestATenthOfTheConfigMapsIsTheSame(t *testing.T) {
	m := mix.New(1, pods)
	same, seen := 0, sets.New[string]()
	for i := range 1000 {
		c := m.ConfigMap(i)
		if c.Name == "kube-root-ca.crt" {
			same++
		}
		seen.Insert(fmt.Sprint(c.Data))
	}
	if same != 100 || seen.Len() != 901 {
		t.Errorf("%d of 1000 are kube-root-ca.crt, and there are %d contents, want 100 and 901", same, seen.Len())
	}
}

func TestNoTwoStringsOfStrangersAreTheSame(t *testing.T) {
	m := mix.New(1, pods)
	seen := map[string]string{}
	for i := range 50 {
		wire, err := m.Stranger(i * 100).Marshal()
		testkit.Must(t, err)
		p := &corev1.Pod{}
		testkit.Must(t, p.Unmarshal(wire))
		texts(reflect.ValueOf(p).Elem(), "Pod", func(place, text string) {
			if len(text) < 8 { // there are not enough short strings for all to differ
				return
			}
			if other, ok := seen[text]; ok {
				t.Fatalf("%s and %s are both %q", place, other, text)
			}
			seen[text] = place
		})
	}
	testkit.AtLeast(t, "strings in 50 Pods", len(seen), 50*50)
}

// texts calls each with all strings inside of v.
func texts(v reflect.Value, place string, each func(place, text string)) {
	switch v.Kind() {
	case reflect.String:
		each(place, v.String())
	case reflect.Pointer:
		if !v.IsNil() {
			texts(v.Elem(), place, each)
		}
	case reflect.Slice:
		if raw, ok := v.Interface().([]byte); ok {
			each(place, string(raw))
			return
		}
		for i := range v.Len() {
			texts(v.Index(i), place, each)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[resource.Quantity]() { // its format is one of few
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				texts(v.Field(i), place+"."+v.Type().Field(i).Name, each)
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			texts(it.Key(), place, each)
			texts(it.Value(), place, each)
		}
	}
}
