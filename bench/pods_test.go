package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
)

func somePod(t *testing.T, i int) pod {
	t.Helper()
	template, err := readPod()
	if err != nil {
		t.Fatal(err)
	}
	return vary(template, i)
}

func TestThePodIsOneThatAnAPIServerWouldSend(t *testing.T) {
	strict := json.NewDecoder(bytes.NewReader(realPod))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&corev1.Pod{}); err != nil {
		t.Error(err)
	}
	p := somePod(t, 0)
	if len(p.Spec.Containers) != 2 || len(p.Spec.InitContainers) != 1 || len(p.ManagedFields) != 2 {
		t.Errorf("%d containers, %d init containers, %d managers", len(p.Spec.Containers), len(p.Spec.InitContainers), len(p.ManagedFields))
	}
	for _, m := range p.ManagedFields {
		if raw := m.FieldsV1.GetRawBytes(); !json.Valid(raw) || bytes.ContainsAny(raw, "\n ") {
			t.Errorf("the fields of %s are not as they are sent: %s", m.Manager, raw)
		}
	}
}

func TestPodsDifferWhereThoseOfAClusterDo(t *testing.T) {
	template, err := readPod()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for i := range 3000 {
		p := vary(template, i)
		for _, of := range []string{
			p.Namespace + "/" + p.Name, string(p.UID), p.ResourceVersion, p.Status.PodIP,
			p.Status.ContainerStatuses[0].ContainerID, p.Status.ContainerStatuses[1].ContainerID, p.Status.InitContainerStatuses[0].ContainerID,
		} {
			if other, ok := seen[of]; ok {
				t.Fatalf("Pods %d and %d both have %s", other, i, of)
			}
			seen[of] = i
		}
	}
	a, b, c := somePod(t, 0), somePod(t, 1), somePod(t, podsPerReplicaSet)
	if a.OwnerReferences[0].UID != b.OwnerReferences[0].UID || a.Spec.NodeName != b.Spec.NodeName {
		t.Error("neighbours share no ReplicaSet, or no node")
	}
	if a.OwnerReferences[0].UID == c.OwnerReferences[0].UID || a.Labels["pod-template-hash"] == c.Labels["pod-template-hash"] {
		t.Error("all Pods are of one ReplicaSet")
	}
}

func TestPodsFromTheWireShareNoStrings(t *testing.T) {
	sent := somePod(t, 0)
	texts := func(p pod) []string {
		c := p.Spec.Containers[0]
		return []string{p.Name, p.Namespace, p.OwnerReferences[0].Name, p.Annotations["checksum/config"], c.Image, c.Args[0], c.Env[0].Name, p.Spec.NodeName}
	}
	one, other := decodePod(sent), decodePod(sent)
	if !slices.Equal(texts(one), texts(sent)) {
		t.Errorf("got %q, sent %q", texts(one), texts(sent))
	}
	ones, others := texts(one), texts(other)
	for i, s := range ones {
		if unsafe.StringData(s) == unsafe.StringData(others[i]) || unsafe.StringData(s) == unsafe.StringData(texts(sent)[i]) {
			t.Errorf("%q is shared", s)
		}
	}
	if m := decodeMetadata(sent); m.Name != sent.Name || len(m.ManagedFields) != 2 || unsafe.StringData(m.Name) == unsafe.StringData(sent.Name) {
		t.Errorf("metadata %v", m)
	}
}

func TestWhatIsReducedIsWhatAControllerReads(t *testing.T) {
	p := somePod(t, 0)
	whole, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	store := projected()
	check := func(step string) {
		t.Helper()
		obj, exists, err := store.GetByKey(p.Namespace + "/" + p.Name)
		if err != nil || !exists {
			t.Fatalf("%s: %v, %v", step, exists, err)
		}
		kept := obj.(pod)
		if kept.UID != p.UID || len(kept.Labels) == 0 || kept.Spec.NodeName == "" || kept.Status.Phase != corev1.PodRunning || kept.Status.PodIP == "" {
			t.Errorf("%s: lost too much: %v", step, kept)
		}
		if kept.ManagedFields != nil || kept.Annotations != nil || kept.Spec.Containers != nil || kept.Status.ContainerStatuses != nil {
			t.Errorf("%s: kept too much: %v", step, kept)
		}
	}
	for step, write := range map[string]func() error{
		"add":     func() error { return store.Add(p) },
		"update":  func() error { return store.Update(p) },
		"replace": func() error { return store.Replace([]any{p}, "1") },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		check(step)
	}
	if after, err := json.Marshal(p); err != nil || !bytes.Equal(after, whole) {
		t.Errorf("the Pod itself was changed: %v", err)
	}
}

func TestWhoKeepsLessTakesLess(t *testing.T) {
	s := podsSection(tinySizes)
	r := runSection(t.Context(), s, 1, func(int) {})
	if r.err != nil {
		t.Fatal(r.err)
	}
	// These rows are whole Pods, Pods without managed fields, and Pods reduced by the
	// transform.
	for i := range sides {
		var heap []float64
		for _, f := range r.rows[2:5] {
			heap = append(heap, f.samples[i][0])
		}
		if heap[0] < heap[1]*1.1 || heap[1] < heap[2]*2 {
			t.Errorf("%s: %.0f", sides[i].name, heap)
		}
	}
}
