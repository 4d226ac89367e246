package testkit

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// CheckView fails the test unless the events of r are consistent and result in the state of
// src.
func CheckView(t *testing.T, r *Recorder, src *Source) {
	t.Helper()
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	var seen []ConfigMap
	for _, obj := range r.View() {
		seen = append(seen, obj)
	}
	if diff := cmp.Diff(Versions(src.Objects()...), Versions(seen...)); diff != "" {
		t.Errorf("the view of the watcher is not the state of the source (-source +watcher):\n%s", diff)
	}
}

// CheckStore fails the test unless inf returns the state of src.
func CheckStore(t *testing.T, inf *Informer, src *Source) {
	t.Helper()
	objs, err := inf.List("", nil)
	Must(t, err)
	if diff := cmp.Diff(Versions(src.Objects()...), Versions(objs...)); diff != "" {
		t.Errorf("the store does not hold the state of the source (-source +store):\n%s", diff)
	}
	if got := inf.Health().Objects; got != len(objs) && got != -1 {
		t.Errorf("Health counts %d objects in the store, which has %d", got, len(objs))
	}
}

// CheckKept fails the test unless store has this bookmark, and tombstones of exactly the objects
// with these names. The names must be sorted.
func CheckKept(t *testing.T, store *Durable, bookmark string, names ...string) {
	t.Helper()
	got, err := store.Resume(t.Context())
	if err != nil || got != bookmark {
		t.Errorf("the bookmark is %q (%v), not %q", got, err, bookmark)
	}
	tombs, err := store.Tombstones(t.Context())
	Must(t, err)
	var kept []string
	for _, tomb := range tombs {
		kept = append(kept, tomb.Object.(ConfigMap).Name)
	}
	slices.Sort(kept)
	if diff := cmp.Diff(names, kept); diff != "" {
		t.Errorf("tombstones (-want +got):\n%s", diff)
	}
}

// Told returns the events of r as text, such as "initial added a".
func Told(r *Recorder) []string {
	var events []string
	for _, e := range r.Events() {
		events = append(events, fmt.Sprintf("%s %s %s", e.Origin, e.Type, e.Key().Name))
	}
	return events
}

// Sorted returns a sorted copy of s.
func Sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// Versions maps each object to its UID and resourceVersion.
func Versions(objs ...ConfigMap) map[types.NamespacedName]string {
	m := map[types.NamespacedName]string{}
	for _, obj := range objs {
		m[cache.MetaObjectToName(obj).AsNamespacedName()] = fmt.Sprintf("%s@%s", obj.UID, obj.ResourceVersion)
	}
	return m
}

// Value returns what Get has returned as text: the value of the object, "none", or the error.
func Value(obj ConfigMap, exists bool, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case !exists:
		return "none"
	}
	return obj.Data["value"]
}

// Count returns the number of objects that List or ByIndex has returned, or the error.
func Count[T any](objs []T, err error) any {
	if err != nil {
		return err
	}
	return len(objs)
}
