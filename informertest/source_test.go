package informertest_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestMain(m *testing.M) {
	// The handlers after the first sleep for longer and longer. That takes no time in a
	// synctest bubble, so it would end decades later.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}

type configMapSource = informertest.Source[*corev1.ConfigMap]

// configMap returns an object whose data is value, so that tests can tell its versions apart.
func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:       map[string]string{"value": value},
	}
}

func labelled(obj *corev1.ConfigMap, app string) *corev1.ConfigMap {
	obj.Labels = map[string]string{"app": app}
	return obj
}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// must returns obj, and panics if err is not nil.
func must[T any](obj T, err error) T {
	if err != nil {
		panic(err)
	}
	return obj
}

func openWatch[T informer.Object](t *testing.T, src *informertest.Source[T], options metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := src.WatchWithContext(t.Context(), options)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	return w
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch has ended")
		}
		return e
	case <-time.After(24 * time.Hour):
		t.Fatal("no event")
	}
	panic("not reached")
}

// describe returns an event in the notation of wantEvents.
func describe(e watch.Event) string {
	switch obj := e.Object.(type) {
	case *corev1.ConfigMap:
		if e.Type == watch.Bookmark {
			return fmt.Sprintf("BOOKMARK @%s%s", obj.ResourceVersion, obj.Annotations[metav1.InitialEventsAnnotationKey])
		}
		return fmt.Sprintf("%s %s=%s @%s", e.Type, obj.Name, obj.Data["value"], obj.ResourceVersion)
	case *metav1.Status:
		return fmt.Sprintf("%s %d %s", e.Type, obj.Code, obj.Reason)
	}
	return fmt.Sprintf("%s %T", e.Type, e.Object)
}

// wantEvents reads exactly these events, for instance "ADDED name=value @1001",
// "BOOKMARK @1001" and "ERROR 410 Expired".
func wantEvents(t *testing.T, w watch.Interface, want ...string) {
	t.Helper()
	var got []string
	for range want {
		got = append(got, describe(next(t, w)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	wantQuiet(t, w)
}

// wantQuiet checks that the watch is open and has nothing to deliver.
func wantQuiet(t *testing.T, w watch.Interface) {
	t.Helper()
	synctest.Wait()
	select {
	case e, ok := <-w.ResultChan():
		t.Fatalf("got %v (%v), want an open watch without an event", describe(e), ok)
	default:
	}
}

func wantClosed(t *testing.T, w watch.Interface) {
	t.Helper()
	synctest.Wait()
	select {
	case e, ok := <-w.ResultChan():
		if ok {
			t.Fatalf("got %v, want the end of the watch", describe(e))
		}
	default:
		t.Fatal("the watch is still open")
	}
}

func wantError(t *testing.T, err error, is func(error) bool) {
	t.Helper()
	if err == nil || !is(err) {
		t.Fatalf("got error %#v", err)
	}
}

func TestEveryWriteGetsTheNextResourceVersion(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"))
	got := []string{src.ResourceVersion()}
	for _, obj := range []*corev1.ConfigMap{
		must(src.Create(configMap("b", "1"))),
		must(src.Update(configMap("a", "2"))),
		src.Apply(configMap("b", "2")),
		src.Apply(configMap("c", "1")),
		must(src.Delete(keyOf("a"))),
	} {
		got = append(got, obj.ResourceVersion)
	}
	got = append(got, src.ResourceVersion())
	want := []string{"1001", "1002", "1003", "1004", "1005", "1006", "1006"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("resourceVersions (-want +got):\n%s", diff)
	}
}

func TestAWriteThatChangesNothingIsNone(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"))
	src.Apply(configMap("a", "1"))
	got := must(src.Update(configMap("a", "1")))
	if got.ResourceVersion != "1001" || got.UID == "" || src.ResourceVersion() != "1001" {
		t.Fatalf("got resourceVersion %s, source at %s", got.ResourceVersion, src.ResourceVersion())
	}
}

// A server compares what it would store. A client that decodes and encodes an object may change it otherwise.
func TestAWriteOfTheSameJSONIsNone(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	pod := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", CreationTimestamp: created}, Status: corev1.PodStatus{StartTime: &created}}
	}
	src := informertest.NewSource(pod())
	for name, change := range map[string]func(*corev1.Pod){
		"an empty map":   func(p *corev1.Pod) { p.Labels, p.Spec.NodeSelector = map[string]string{}, map[string]string{} },
		"an empty slice": func(p *corev1.Pod) { p.Spec.Volumes, p.Status.Conditions = []corev1.Volume{}, []corev1.PodCondition{} },
		"a part of a second": func(p *corev1.Pod) {
			second := metav1.NewTime(created.Truncate(time.Second))
			p.CreationTimestamp, p.Status.StartTime = second, &second
		},
	} {
		other := pod()
		change(other)
		for op, got := range map[string]*corev1.Pod{"Update": must(src.Update(other)), "Apply": src.Apply(other)} {
			if got.ResourceVersion != "1001" || got.Generation != 1 || src.ResourceVersion() != "1001" {
				t.Errorf("%s, %s: resourceVersion %s, generation %d, source at %s", name, op, got.ResourceVersion, got.Generation, src.ResourceVersion())
			}
		}
	}
}

func TestWritesFailAsWithTheAPIServer(t *testing.T) {
	src := informertest.NewSource(configMap("a", "1"))
	stale := must(src.Get(keyOf("a")))
	src.Apply(configMap("a", "2"))
	other := configMap("a", "3")
	other.UID = "other"

	_, err := src.Create(configMap("a", "3"))
	wantError(t, err, apierrors.IsAlreadyExists)
	_, err = src.Create(configMap("", "1"))
	wantError(t, err, apierrors.IsInvalid)
	_, err = src.Update(configMap("b", "1"))
	wantError(t, err, apierrors.IsNotFound)
	stale.Data["value"] = "3"
	_, err = src.Update(stale)
	wantError(t, err, apierrors.IsConflict)
	_, err = src.Update(other)
	wantError(t, err, apierrors.IsConflict)
	_, err = src.Delete(keyOf("b"))
	wantError(t, err, apierrors.IsNotFound)
	if want := `configmaps "b" not found`; err.Error() != want {
		t.Errorf("got message %q, want %q", err, want)
	}
	_, err = src.Get(keyOf("b"))
	wantError(t, err, apierrors.IsNotFound)

	if got := src.ResourceVersion(); got != "1002" {
		t.Errorf("a write that failed has moved the resourceVersion to %s", got)
	}
	fresh := must(src.Get(keyOf("a")))
	fresh.Data["value"] = "3"
	if got := must(src.Update(fresh)); got.Data["value"] != "3" || got.ResourceVersion != "1003" {
		t.Errorf("update of the latest version: got %v", got)
	}
	stale.UID = "other"
	if got := src.Apply(stale); got.ResourceVersion != "1003" || got.UID != fresh.UID {
		t.Errorf("apply is not unconditional: got %v", got)
	}
}

func TestNoUIDIsUsedTwice(t *testing.T) {
	mine := configMap("mine", "1")
	mine.UID = "mine"
	src := informertest.NewSource(mine, configMap("a", "1"), configMap("b", "1"))
	if got := must(src.Get(keyOf("mine"))).UID; got != "mine" {
		t.Errorf("the UID of the object has become %s", got)
	}
	seen := map[types.UID]bool{}
	for _, obj := range src.Objects() {
		seen[obj.UID] = true
	}
	again := must(src.Create(must(src.Delete(keyOf("a")))))
	seen[again.UID] = true
	if len(seen) != 4 || seen[""] {
		t.Errorf("got UIDs %v, want 4", seen)
	}
	if updated := src.Apply(configMap("a", "2")); updated.UID != again.UID {
		t.Errorf("an update has changed the UID from %s to %s", again.UID, updated.UID)
	}
}

func TestImpossibleCallsPanic(t *testing.T) {
	src, client := informertest.NewSource[*corev1.ConfigMap](), fake.NewClientset()
	for name, call := range map[string]func(){
		"NewSource of an object without a name": func() { informertest.NewSource(configMap("", "1")) },
		"NewSource of one object twice":         func() { informertest.NewSource(configMap("a", "1"), configMap("a", "2")) },
		"Apply of an object without a name":     func() { src.Apply(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}}) },
		"Fail without an error":                 func() { src.Fail("list", nil, 1) },
		"Fail of another verb":                  func() { src.Fail("get", errors.New("no"), 1) },
		"FailIn without an error":               func() { src.FailIn("a", "list", nil, 1) },
		"Serve without a fake":                  func() { src.Serve(nil, "configmaps", &corev1.ConfigMapList{}) },
		"Serve without a resource":              func() { src.Serve(&client.Fake, "", &corev1.ConfigMapList{}) },
		"Serve without a list":                  func() { src.Serve(&client.Fake, "configmaps", nil) },
		"SetSelectableFields of an empty path":  func() { src.SetSelectableFields(".") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}

func TestObjectsAreSortedByNamespaceAndName(t *testing.T) {
	elsewhere := configMap("a", "1")
	elsewhere.Namespace = "default-2"
	global := configMap("z", "1")
	global.Namespace = ""
	src := informertest.NewSource(elsewhere, configMap("b", "1"), global, configMap("a", "1"))
	var got []string
	for _, obj := range src.Objects() {
		got = append(got, obj.Namespace+"/"+obj.Name)
	}
	if diff := cmp.Diff([]string{"/z", "default/a", "default/b", "default-2/a"}, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestNoCallerSharesAnObjectWithTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := configMap("a", "1")
		src := informertest.NewSource(mine)
		spoil := func(obj *corev1.ConfigMap) { obj.Data["value"] = "spoilt" }
		spoil(mine)
		spoil(must(src.Get(keyOf("a"))))
		spoil(src.Objects()[0])
		spoil(src.Apply(configMap("a", "2")))
		spoil(items(t, must(src.List(metav1.ListOptions{})))[0])
		for range 2 {
			w := openWatch(t, src, metav1.ListOptions{ResourceVersion: "1000"})
			spoil(next(t, w).Object.(*corev1.ConfigMap))
			spoil(next(t, w).Object.(*corev1.ConfigMap))
			spoil(next(t, openWatch(t, src, metav1.ListOptions{})).Object.(*corev1.ConfigMap))
		}

		wantEvents(t, openWatch(t, src, metav1.ListOptions{ResourceVersion: "1000"}), "ADDED a=1 @1001", "MODIFIED a=2 @1002")
		wantItems(t, must(src.List(metav1.ListOptions{})), "a=2 @1002")
		if got := must(src.Get(keyOf("a"))).Data["value"]; got != "2" {
			t.Errorf("got value %q", got)
		}
		spoil(must(src.Delete(keyOf("a"))))
		wantEvents(t, openWatch(t, src, metav1.ListOptions{ResourceVersion: "1002"}), "DELETED a=2 @1003")
	})
}
