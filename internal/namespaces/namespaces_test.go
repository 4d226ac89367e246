package namespaces_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// The three kinds of clients that client-go has fit without an adapter.
func TestAnyClientReadsSeveralNamespaces(t *testing.T) {
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
	objs := func() (all []runtime.Object) {
		for _, namespace := range []string{"a", "b", "c"} {
			obj := object(namespace, "x", "1")
			obj.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
			all = append(all, obj)
		}
		return all
	}
	namespaces := []string{"c", "a"}
	t.Run("typed", func(t *testing.T) {
		var client kubernetes.Interface = fake.NewClientset(objs()...)
		inf, err := informer.NewInNamespaces(client.CoreV1().ConfigMaps, namespaces, informer.Options[*corev1.ConfigMap]{})
		readsTwo(t, inf, err)
	})
	t.Run("dynamic", func(t *testing.T) {
		var client dynamic.Interface = dynamicfake.NewSimpleDynamicClient(scheme.Scheme, objs()...)
		inf, err := informer.NewInNamespaces(client.Resource(gvr).Namespace, namespaces, informer.Options[*unstructured.Unstructured]{})
		readsTwo(t, inf, err)
	})
	t.Run("metadata", func(t *testing.T) {
		meta := metadatafake.NewTestScheme()
		must(t, metav1.AddMetaToScheme(meta))
		var some []runtime.Object
		for _, obj := range objs() {
			m := obj.(configMap)
			some = append(some, &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: m.ObjectMeta})
		}
		var client metadata.Interface = metadatafake.NewSimpleMetadataClient(meta, some...)
		inf, err := informer.NewInNamespaces(client.Resource(gvr).Namespace, namespaces, informer.Options[*metav1.PartialObjectMetadata]{})
		readsTwo(t, inf, err)
	})
}

func readsTwo[T informer.Object](t *testing.T, inf *informer.CustomCacheInformer[T], err error) {
	t.Helper()
	must(t, err)
	informertest.Run(t, inf)
	var keys []string
	for key := range inf.All() {
		keys = append(keys, key.String())
	}
	equal(t, "stored", testkit.Sorted(keys), "[a/x c/x]")
}

func TestNamespacesThatCannotBeUsedAreErrors(t *testing.T) {
	src := informertest.NewSource[configMap]()
	for says, tc := range map[string]struct {
		client     func(string) informer.UntypedClient[*metav1.List]
		namespaces []string
	}{
		"function that returns clients is nil":      {nil, []string{"a"}},
		`"a" is given twice`:                        {src.Namespace, []string{"a", "b", "a"}},
		`to read all namespaces, use New`:           {src.Namespace, []string{"a", ""}},
		`"a/b" is not a name of a namespace`:        {src.Namespace, []string{"a/b"}},
		"the client is nil":                         {func(string) informer.UntypedClient[*metav1.List] { return nil }, []string{"a"}},
		strings.Repeat("x", 64) + `" is not a name`: {src.Namespace, []string{strings.Repeat("x", 64)}},
	} {
		_, err := informer.NewInNamespaces(tc.client, tc.namespaces, options{})
		errorSays(t, err, says)
	}
}

// A namespace that the client may not read delays the sync, and nothing else.
func TestAForbiddenNamespaceHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, errs := newServer(object("a", "x", "1"), object("b", "x", "1"), object("c", "x", "1")), &testkit.ErrorLog{}
		s.gate("b").forbid()
		inf := s.informer(t, options{Name: "maps", ErrorHandler: errs.Handle}, "a", "b", "c")
		inf.start(time.Minute)
		inf.check("a", "c")
		s.Apply(object("a", "x", "2"))
		inf.checkAfter(time.Second, "a", "c")

		err := inf.WaitForSync(testkit.Within(t, time.Second))
		var late *informer.SyncError
		if !errors.As(err, &late) || !strings.Contains(err.Error(), "the first list of b") || !strings.Contains(err.Error(), "list maps in namespace b: ") {
			t.Errorf("WaitForSync: %v", err)
		}
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "list maps in namespace b: configmaps is forbidden") {
			t.Errorf("reported: %v", got)
		}
		h := inf.Health()
		if h.Watching || h.ResourceVersion != "" || h.SourceError == nil || !h.LastList.IsZero() || len(h.Namespaces) != 3 {
			t.Errorf("health: %+v", h)
		}
		for _, n := range h.Namespaces {
			if ok := n.Namespace != "b"; n.Synced != ok || n.Watching != ok || (n.SourceError == nil) != ok || (n.ResourceVersion != "") != ok {
				t.Errorf("health: %+v", n)
			}
		}

		// No forbidden namespace holds up a caller that waits for another namespace.
		err = inf.WaitForVersion(testkit.Within(t, time.Second), "a", "9999")
		if !errors.As(err, &late) || late.Reason != nil {
			t.Errorf("waiting for a: %v", err)
		}
		err = inf.WaitFor(testkit.Within(t, time.Second), keyOf("a", "none"), func(_ configMap, there bool) bool { return there })
		if !errors.As(err, &late) || late.Reason != nil {
			t.Errorf("waiting for an object of a: %v", err)
		}
		err = inf.WaitForVersion(testkit.Within(t, time.Second), "b", "9999")
		if !errors.As(err, &late) || late.Reason == nil {
			t.Errorf("waiting for b: %v", err)
		}
		err = inf.WaitForVersion(testkit.Within(t, time.Second), "", "1001")
		errorSays(t, err, "resourceVersion 1001 of b; failing now: list maps in namespace b")

		s.Heal()
		inf.checkAfter(time.Minute, "a", "b", "c")
		noError(t, inf.WaitForSync(t.Context()))
		if h := inf.Health(); !h.Watching || h.ResourceVersion == "" || h.SourceError != nil || h.LastList.IsZero() {
			t.Errorf("health: %+v", h)
		}
	})
}

// A namespace that is forbidden later keeps its last state: nothing shows that its objects are
// gone.
func TestANamespaceForbiddenLaterKeepsItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"))
		inf := s.informer(t, options{ErrorHandler: testkit.Ignore}, "a", "b")
		informertest.Run(t, inf)
		s.gate("b").forbid()
		s.Expire() // the next request after the refusal must be a list
		for n := range 3 {
			s.Apply(object("a", "x", fmt.Sprint("new", n)))
			time.Sleep(10 * time.Minute)
		}
		equal(t, "deletes", deletes(inf.recorder), "[]")
		inf.check("a", "b") // nothing has happened in b
		noError(t, inf.Health().Ready())
		errorSays(t, inf.Health().SourceError, "in namespace b")
		_, _ = s.Delete(keyOf("b", "x"))
		s.Heal()
		inf.checkAfter(10*time.Minute, "a", "b")
	})
}

// A reflector over a merged stream would resume from the last event of any namespace, and skip
// an older event of another.
func TestAWatchThatEndsSkipsNoEventOfAnotherNamespace(t *testing.T) {
	testkit.EachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		s := newServer(object("a", "x", "0"), object("b", "x", "0"))
		inf := s.informer(t, options{Queue: queue}, "a", "b")
		informertest.Run(t, inf)
		time.Sleep(time.Minute) // client-go lists again when a watch ends within a second
		for n := range 20 {
			open := s.gate("b").hold()
			s.Apply(object("b", "x", fmt.Sprint(n))) // b has not read it
			if n%3 == 0 {
				_, _ = s.Delete(keyOf("b", "x"))
			}
			s.Apply(object("a", "x", fmt.Sprint(n))) // a is ahead
			synctest.Wait()
			s.gate("a").cut()
			if n%2 == 0 {
				s.gate("b").cut()
			}
			s.Apply(object("a", "y", fmt.Sprint(n)))
			open()
			inf.checkAfter(10*time.Second, "a", "b")
		}
		if a, b := s.gate("a").asked(), s.gate("b").asked(); !strings.HasPrefix(a, "1 lists") || !strings.HasPrefix(b, "1 lists") {
			t.Errorf("a: %s; b: %s", a, b)
		}
	})
}

// Only the namespace whose version is gone lists again, and only its objects can be missing from
// that list.
func TestAnExpiredVersionRelistsOneNamespace(t *testing.T) {
	testkit.EachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		s := newServer(object("a", "x", "1"), object("a", "gone", "1"), object("b", "x", "1"), object("b", "y", "1"))
		inf := s.informer(t, options{Queue: queue}, "a", "b")
		informertest.Run(t, inf)
		s.gate("a").forbid()
		_, _ = s.Delete(keyOf("a", "gone"))
		s.Compact()
		s.Apply(object("b", "x", "2"))
		s.Heal()
		inf.checkAfter(time.Minute, "a", "b")
		if a, b := s.gate("a").asked(), s.gate("b").asked(); !strings.HasPrefix(a, "2 lists") || b != "1 lists, 1 watches" {
			t.Errorf("a: %s; b: %s", a, b)
		}
		for _, e := range inf.Events() {
			if e.Origin == informer.OriginRelist && e.Key().Namespace != "a" {
				t.Errorf("unexpected event %v", e)
			}
		}
	})
}

// A caller that has written to one namespace does not wait for a quiet one.
func TestAWriteIsReadInItsNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"))
		inf := s.informer(t, options{}, "a", "b")
		informertest.Run(t, inf)
		first := inf.ResourceVersion()
		written := s.Apply(object("a", "x", "2"))
		noError(t, inf.WaitForVersion(testkit.Within(t, time.Second), "a", written.ResourceVersion))
		equal(t, "x", testkit.Value(inf.Get(keyOf("a", "x"))), "2")
		equal(t, "the version of all, which b has not passed", inf.ResourceVersion(), first)
		equal(t, "the same in client-go's shape", inf.SharedIndexInformer().LastSyncResourceVersion(), first)
		errorIs(t, inf.WaitForVersion(testkit.Within(t, time.Second), "", written.ResourceVersion), context.DeadlineExceeded)
		s.Bookmark()
		noError(t, inf.WaitForVersion(testkit.Within(t, time.Second), "", written.ResourceVersion))
		equal(t, "the version of all", inf.ResourceVersion(), written.ResourceVersion)
		errorSays(t, inf.WaitForVersion(t.Context(), "c", "1"), `does not read the namespace "c"`)
	})
}

// A function that forgets to pass the namespace on would let each source delete the objects of
// the others.
func TestAClientOfAnotherNamespaceIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, errs := newServer(object("a", "x", "1"), object("b", "x", "1")), &testkit.ErrorLog{}
		all := func(string) informer.UntypedClient[*metav1.List] { return s.Namespace("") }
		inf := s.informerOver(t, options{WatchList: informer.WatchListOff, ErrorHandler: errs.Handle}, all, "a", "b")
		inf.start(time.Minute)
		if objs, _ := inf.List("", nil); len(objs) > 0 || inf.HasSynced() {
			t.Errorf("it has %d objects and has synced: %v", len(objs), inf.HasSynced())
		}
		got := errors.Join(errs.Take()...)
		errorSays(t, got, `the client for namespace "a" delivers an object of namespace "b"`)
		errorSays(t, got, `the client for namespace "b" delivers an object of namespace "a"`)
	})
}

// A group of such an informer syncs as one with a single source does.
func TestAGroupWaitsForAllNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"))
		inf := s.informer(t, options{}, "a", "b")
		var group informer.Group
		must(t, group.Add(inf))
		stop := informertest.Run(t, &group)
		inf.check("a", "b")
		noError(t, group.Ready())
		stop()
		equal(t, "stopped", inf.Health().Stopped, true)
	})
}
