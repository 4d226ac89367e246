package enqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

type key = types.NamespacedName

func podOf(refs ...metav1.OwnerReference) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", OwnerReferences: refs}}
}

func owner(version, kind, name string, controller bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, Controller: &controller}
}

func TestTheKeysOfAnObjectsOwners(t *testing.T) {
	kind := schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	web, db := owner("apps/v1", "ReplicaSet", "web", true), owner("apps/v1beta1", "ReplicaSet", "db", true)
	other := owner("apps/v1", "ReplicaSet", "other", false)
	for name, test := range map[string]struct {
		owners Owners
		states []*corev1.Pod // the new one first
		want   string
	}{
		"one state":                      {Owners{Kind: kind}, []*corev1.Pod{podOf(web)}, "ns/web"},
		"two states":                     {Owners{Kind: kind}, []*corev1.Pod{podOf(web), podOf(web)}, "ns/web"},
		"another version of the API":     {Owners{Kind: kind}, []*corev1.Pod{podOf(db)}, "ns/db"},
		"changes hands":                  {Owners{Kind: kind}, []*corev1.Pod{podOf(db), podOf(web)}, "ns/db ns/web"},
		"no owner":                       {Owners{Kind: kind}, []*corev1.Pod{podOf()}, ""},
		"no controller":                  {Owners{Kind: kind}, []*corev1.Pod{podOf(other)}, ""},
		"the controller is not given":    {Owners{Kind: kind}, []*corev1.Pod{podOf(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x"})}, ""},
		"all owners":                     {Owners{Kind: kind, All: true}, []*corev1.Pod{podOf(web, other, web)}, "ns/web ns/other"},
		"another group":                  {Owners{Kind: kind}, []*corev1.Pod{podOf(owner("example.com/v1", "ReplicaSet", "x", true))}, ""},
		"another kind":                   {Owners{Kind: kind}, []*corev1.Pod{podOf(owner("apps/v1", "StatefulSet", "x", true))}, ""},
		"a version that cannot be read":  {Owners{Kind: schema.GroupKind{Kind: "Node"}}, []*corev1.Pod{podOf(owner("a/b/c", "Node", "x", true))}, ""},
		"the core group, cluster-scoped": {Owners{Kind: schema.GroupKind{Kind: "Node"}, ClusterScoped: true}, []*corev1.Pod{podOf(owner("v1", "Node", "n", true))}, "/n"},
	} {
		keys, err := mapper[*corev1.Pod, key]{keys: ownersOf[*corev1.Pod](test.owners)}.of(t.Context(), "", test.states...)
		if got := strings.Trim(fmt.Sprint(keys), "[]"); got != test.want || err != nil {
			t.Errorf("%s: the keys are %q, %v, want %q", name, got, err, test.want)
		}
	}
}

// An object may name as many owners as fit into it, tens of thousands. Each costs a key and no
// more: each key comes once, and the work does not grow with the square of their number.
func TestAnObjectOfVeryManyOwnersLeadsToEachOnce(t *testing.T) {
	n := 200_000
	if testing.Short() {
		n = 20_000
	}
	var refs []metav1.OwnerReference
	for i := range n {
		refs = append(refs, owner("apps/v1", "ReplicaSet", fmt.Sprint(i), false), owner("apps/v1", "Deployment", fmt.Sprint(i), false))
	}
	all := podOf(append(refs, refs...)...)
	m := mapper[*corev1.Pod, key]{keys: ownersOf[*corev1.Pod](Owners{Kind: schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, All: true})}
	began := time.Now()
	keys, _ := m.of(t.Context(), "", all, all)
	if took := time.Since(began); took > 2*time.Minute { // it takes seconds, and with the square several minutes
		t.Errorf("%d owners took %v", n, took)
	}
	if len(keys) != n || keys[n-1].Name != fmt.Sprint(n-1) {
		t.Errorf("there are %d keys, want %d in the order of the owners", len(keys), n)
	}
}

func TestAMapperThatFailsLeadsToNoKey(t *testing.T) {
	m := mapper[*corev1.Pod, string]{keys: func(_ context.Context, _ string, p *corev1.Pod) ([]string, error) {
		if len(p.OwnerReferences) > 0 {
			return []string{"never"}, errors.New("no such node")
		}
		return []string{"a"}, nil
	}}
	if keys, err := m.of(t.Context(), "", podOf(), podOf(owner("v1", "Node", "n", true))); len(keys) > 0 || err == nil {
		t.Errorf("the keys are %v, %v", keys, err)
	}
}

func TestChanges(t *testing.T) {
	base := podOf()
	base.Generation, base.Labels, base.Annotations = 1, map[string]string{"l": "1"}, map[string]string{"a": "1"}
	changed := func(change func(*corev1.Pod)) *corev1.Pod {
		p := base.DeepCopy()
		change(p)
		return p
	}
	now := metav1.Now()
	states := map[string]*corev1.Pod{
		"status":     changed(func(p *corev1.Pod) { p.Status.Phase = "Running" }),
		"generation": changed(func(p *corev1.Pod) { p.Generation = 2 }),
		"label":      changed(func(p *corev1.Pod) { p.Labels["l"] = "2" }),
		"no labels":  changed(func(p *corev1.Pod) { p.Labels = nil }),
		"annotation": changed(func(p *corev1.Pod) { p.Annotations["b"] = "1" }),
		"deletion":   changed(func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
	}
	running := func(_, after metav1.Object) bool { return after.(*corev1.Pod).Status.Phase == "Running" }
	for name, test := range map[string]struct {
		changes []Change
		want    string // the states that pass, sorted
	}{
		"none":           {nil, "annotation, deletion, generation, label, no labels, status"},
		"Generation":     {[]Change{Generation}, "deletion, generation"},
		"Labels":         {[]Change{Labels}, "deletion, label, no labels"},
		"Annotations":    {[]Change{Annotations}, "annotation, deletion"},
		"any of several": {[]Change{Generation, Annotations}, "annotation, deletion, generation"},
		"the user's own": {[]Change{running}, "deletion, status"},
	} {
		m := mapper[*corev1.Pod, key]{changes: test.changes}
		var passed []string
		for what, state := range states {
			if m.wants(informer.Event[*corev1.Pod]{Old: base, New: state}) {
				passed = append(passed, what)
			}
		}
		slices.Sort(passed)
		if got := strings.Join(passed, ", "); got != test.want {
			t.Errorf("%s: updates of %s pass, want %s", name, got, test.want)
		}
	}
}

// No Change keeps out an update that may hide a state that was reconciled, a resync, which the program
// has asked for, or an update of an object that is being deleted: the owners of its finalizers go one
// after the other, and the API server raises no generation for that.
func TestUpdatesThatAlwaysPass(t *testing.T) {
	now := metav1.Now()
	alive, dying := podOf(), podOf()
	alive.Generation, dying.Generation, dying.DeletionTimestamp = 1, 1, &now
	m := mapper[*corev1.Pod, key]{changes: []Change{Generation, Labels, Annotations}}
	for name, e := range map[string]informer.Event[*corev1.Pod]{
		"a merged update":             {Old: alive, New: alive.DeepCopy(), Merged: true},
		"a resync":                    {Old: alive, New: alive, Origin: informer.OriginResync},
		"an update of a dying object": {Old: dying, New: dying.DeepCopy()},
		"an update of an object without a generation": {Old: podOf(), New: podOf()},
	} {
		if !m.wants(e) {
			t.Errorf("%s is kept out", name)
		}
	}
	if m.wants(informer.Event[*corev1.Pod]{Old: alive, New: alive.DeepCopy()}) {
		t.Error("an update of nothing passes")
	}
}
