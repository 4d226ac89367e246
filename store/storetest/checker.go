package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

type suite struct {
	Options
	durable   DurableOptions // of RunDurable
	newTarget func(t *testing.T) target
}

type check struct {
	name string
	why  string // why an informer has the requirement
	run  func(c *checker)
}

type checker struct {
	*testing.T
	*suite
	store target
}

func newChecker(t *testing.T, s *suite) *checker {
	t.Helper()
	c := &checker{T: t, suite: s, store: s.newTarget(t)}
	if all := c.all(); len(all) > 0 {
		t.Fatalf("newStore returned a store that is not empty: it holds %s", short(keysOf(all)))
	}
	return c
}

func (c *checker) all() []informer.Entry {
	c.Helper()
	all, err := c.store.all()
	if err != nil {
		c.Fatal(err)
	}
	return all
}

func (c *checker) plain() cache.Store { return c.store.(plain).Store }

func (c *checker) lasting() informer.Durable { return c.store.(lasting).Durable }

func (c *checker) over(d informer.Durable) { c.store = lasting{d, c.Context()} }

func (c *checker) rounds(n int) int {
	if testing.Short() {
		return n / 8
	}
	return n
}

// object returns an object with this key and version. The checks tell the states of an
// object apart by the version. The UID depends only on the key.
func (c *checker) object(key string, version int) informer.AnyObject {
	return c.incarnation(key, "1", version)
}

// incarnation is like object, but the UID also depends on number.
func (c *checker) incarnation(key, number string, version int) informer.AnyObject {
	c.Helper()
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		c.Fatal(err)
	}
	obj := c.Object(namespace, name)
	obj.SetUID(types.UID("uid-" + key + "-" + number))
	obj.SetResourceVersion(fmt.Sprint(version))
	return obj
}

// full returns an object in which all metadata fields are set.
func (c *checker) full(key string, version int) informer.AnyObject {
	c.Helper()
	obj := c.object(key, version)
	moment := metav1.NewTime(time.Date(2026, 3, 29, 1, 59, 59, 0, time.UTC))
	grace, yes := int64(30), true
	obj.SetGenerateName("generated-")
	obj.SetGeneration(1 << 60)
	obj.SetCreationTimestamp(moment)
	obj.SetDeletionTimestamp(&moment)
	obj.SetDeletionGracePeriodSeconds(&grace)
	obj.SetLabels(map[string]string{"app.kubernetes.io/name": "web", "empty": ""})
	obj.SetAnnotations(map[string]string{"note": "<ü> & \"quotes\"\n\x00 \u2028", "long": strings.Repeat("0123456789", 10_000)})
	obj.SetFinalizers([]string{"example.com/b", "example.com/a"})
	obj.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "owner", Controller: &yes, BlockOwnerDeletion: &yes,
	}})
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &moment,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{}}}}`), Subresource: "status",
	}})
	return obj
}

func (c *checker) add(objs ...informer.AnyObject) {
	c.Helper()
	for _, obj := range objs {
		if err := c.store.add(obj); err != nil {
			c.Fatalf("adding %s: %v", describe(obj), err)
		}
	}
}

func (c *checker) update(objs ...informer.AnyObject) {
	c.Helper()
	for _, obj := range objs {
		if err := c.store.update(obj); err != nil {
			c.Fatalf("updating %s: %v", describe(obj), err)
		}
	}
}

func (c *checker) delete(objs ...informer.AnyObject) {
	c.Helper()
	for _, obj := range objs {
		if err := c.store.delete(obj); err != nil {
			c.Fatalf("deleting %s: %v", describe(obj), err)
		}
	}
}

func (c *checker) get(key string) any {
	c.Helper()
	obj, exists, err := c.store.get(key)
	if err != nil || !exists {
		c.Fatalf("get of %q: exists %v, %v", key, exists, err)
	}
	return obj
}

func (c *checker) kept(key string) informer.AnyObject {
	c.Helper()
	return c.get(key).(informer.AnyObject)
}

// wantAbsent fails the check unless get finds no object under key and returns no error.
func (c *checker) wantAbsent(key string) {
	c.Helper()
	obj, exists, err := c.store.get(key)
	if obj != nil || exists || err != nil {
		c.Errorf("get of %q, which is not there: %v, %v, %v, want nil, false and no error", key, describe(obj), exists, err)
	}
}

// page returns one page. It ends the check with a failure if tryPage returns an error.
func (c *checker) page(after string, limit int) []informer.Entry {
	c.Helper()
	objs, err := c.tryPage(after, limit)
	if err != nil {
		c.Fatal(err)
	}
	return objs
}

// tryPage returns one page. It returns an error if Scan does, or if the page is too large
// or not in order.
func (c *checker) tryPage(after string, limit int) ([]informer.Entry, error) {
	objs, err := c.lasting().Scan(c.Context(), after, limit)
	if err != nil {
		return nil, fmt.Errorf("Scan(%q, %d): %w", after, limit, err)
	}
	if len(objs) > limit {
		return nil, fmt.Errorf("Scan(%q, %d) returned %d objects, which is more", after, limit, len(objs))
	}
	last := after
	for _, key := range keysOf(objs) {
		if key <= last {
			return nil, fmt.Errorf("Scan(%q, %d): %q comes after %q, which is not the order of keys as strings", after, limit, key, last)
		}
		last = key
	}
	return objs, nil
}

func (c *checker) tryScan(after string, limit int, between func(last string)) (all []informer.Entry, err error) {
	for {
		page, err := c.tryPage(after, limit)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		after = keysOf(page)[len(page)-1]
		between(after)
	}
}

// scan returns all objects, read in pages of limit. It ends the check with a failure if
// tryScan returns an error.
func (c *checker) scan(limit int) []informer.Entry {
	c.Helper()
	all, err := c.tryScan("", limit, func(string) {})
	if err != nil {
		c.Fatal(err)
	}
	return all
}

// want fails the check unless the store has exactly objs. It reads the store in all ways.
func (c *checker) want(objs ...informer.AnyObject) {
	c.Helper()
	want, keys := describeAll(objs), []string{}
	for _, obj := range objs {
		key := keyOf(obj)
		keys = append(keys, key)
		if got := describe(c.get(key)); got != describe(obj) {
			c.Errorf("get of %q returned %s, want %s", key, got, describe(obj))
		}
	}
	c.same("all objects", want, describeEach(c.all()))
	if p, ok := c.store.(plain); ok {
		c.same("ListKeys", keys, p.ListKeys())
	} else {
		c.same("Scan", want, describeEach(c.scan(7)))
	}
}

// wantEqual fails the check unless got equals the part of want that the store keeps. how
// names the call that has returned got.
func (c *checker) wantEqual(how string, want informer.AnyObject, got any) {
	c.Helper()
	kept := c.Kept(want)
	if equality.Semantic.DeepEqual(kept, got) {
		return
	}
	c.Errorf("%s: the object differs from the stored one", how)
	other, ok := got.(informer.AnyObject)
	if !ok || fmt.Sprintf("%T", kept) != fmt.Sprintf("%T", got) {
		c.Errorf("it is a %T, want a %T", got, kept)
		return
	}
	wants, gots := fields(kept), fields(other)
	if equality.Semantic.DeepEqual(wants, gots) {
		c.Errorf("its metadata is right, but the rest is not: %s, want %s", cut(got), cut(kept))
	}
	for _, field := range slices.Sorted(maps.Keys(wants)) {
		if !equality.Semantic.DeepEqual(wants[field], gots[field]) {
			c.Errorf("%s is %s, want %s", field, cut(gots[field]), cut(wants[field]))
		}
	}
}

// fields returns the parts of an object that can be compared one by one.
func fields(obj informer.AnyObject) map[string]any {
	return map[string]any{
		"apiVersion and kind": obj.GetObjectKind().GroupVersionKind().String(), "namespace": obj.GetNamespace(), "name": obj.GetName(),
		"generateName": obj.GetGenerateName(), "UID": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(),
		"generation": obj.GetGeneration(), "creationTimestamp": obj.GetCreationTimestamp(),
		"deletionTimestamp": obj.GetDeletionTimestamp(), "deletionGracePeriodSeconds": obj.GetDeletionGracePeriodSeconds(),
		"labels": obj.GetLabels(), "annotations": obj.GetAnnotations(), "finalizers": obj.GetFinalizers(),
		"ownerReferences": obj.GetOwnerReferences(), "managedFields": obj.GetManagedFields(),
	}
}

// same fails the check unless two lists have the same items, in any order.
func (c *checker) same(what string, want, got []string) {
	c.Helper()
	if d := difference(want, got); d != "" {
		c.Errorf("%s: %s", what, d)
	}
}

// difference describes how two lists differ, whatever their order. It returns "" if they
// have the same items.
func difference(want, got []string) string {
	count := map[string]int{}
	for _, w := range want {
		count[w]++
	}
	var extra, missing []string
	for _, g := range got {
		if count[g]--; count[g] < 0 {
			extra = append(extra, g)
		}
	}
	for _, w := range want {
		if count[w] > 0 {
			missing = append(missing, w)
			count[w]--
		}
	}
	switch {
	case len(missing) > 0 && len(extra) > 0:
		return "missing: " + short(missing) + "; unexpected: " + short(extra)
	case len(missing) > 0:
		return "missing: " + short(missing)
	case len(extra) > 0:
		return "unexpected: " + short(extra)
	}
	return ""
}

func short(list []string) string {
	const most = 5
	text := ""
	for i, item := range list {
		if i == most {
			return fmt.Sprintf("%s and %d more", text, len(list)-most)
		}
		if i > 0 {
			text += ", "
		}
		text += cut(item)
	}
	return text
}

func cut(v any) string {
	text := fmt.Sprintf("%+v", v)
	if len(text) > 200 {
		return text[:200] + "…"
	}
	return text
}

// describe returns the key, UID and version of an object.
func describe(obj any) string {
	object, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Sprintf("%v (%T)", obj, obj)
	}
	return keyOf(object) + " (" + string(object.GetUID()) + "@" + object.GetResourceVersion() + ")"
}

func describeAll[T any](objs []T) []string {
	return mapped(objs, func(obj T) string { return describe(obj) })
}

func describeEach(entries []informer.Entry) []string {
	return mapped(entries, func(e informer.Entry) string { return describe(e.Object) })
}

func keysOf(entries []informer.Entry) []string {
	return mapped(entries, func(e informer.Entry) string { return e.Key })
}

func mapped[T any](list []T, f func(T) string) []string {
	texts := make([]string, 0, len(list))
	for _, item := range list {
		texts = append(texts, f(item))
	}
	return texts
}

func copyOf(obj runtime.Object) informer.AnyObject {
	return obj.DeepCopyObject().(informer.AnyObject)
}
