package informertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// goTest stands for "go test": it runs a test, and prints how it ended.
func goTest(test func(t testing.TB)) {
	t := &exampleTB{}
	test(t)
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
	if len(t.failures) == 0 {
		fmt.Println("PASS")
	} else {
		fmt.Println("FAIL:", strings.Join(t.failures, "; "))
	}
}

type exampleTB struct {
	testing.TB
	cleanups []func()
	failures []string
}

func (t *exampleTB) Helper()                  {}
func (t *exampleTB) Context() context.Context { return context.Background() }
func (t *exampleTB) Cleanup(f func())         { t.cleanups = append(t.cleanups, f) }
func (t *exampleTB) Errorf(f string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(f, args...))
}
func (t *exampleTB) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (t *exampleTB) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }

// A test of a watcher. The source stands for the API server; Run starts the informer, waits until
// it has synced, and stops it at the end of the test. In a real test, t is a *testing.T.
func ExampleRun() {
	test := func(t testing.TB) {
		source := informertest.NewSource(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}})
		configs, err := informer.NewFrom(source, informer.Options[*corev1.ConfigMap]{})
		if err != nil {
			t.Fatal(err)
		}
		// The watcher under test is the Hook of a Recorder, which can wait for events.
		loaded := map[string]string{}
		seen := informertest.Recorder[*corev1.ConfigMap]{Hook: func(_ context.Context, e informer.Event[*corev1.ConfigMap]) error {
			loaded[e.Key().Name] = e.Object().Data["mode"]
			return nil
		}}
		if _, err := configs.AddWatcher(&seen, informer.WatcherOptions{}); err != nil {
			t.Fatal(err)
		}
		stop := informertest.Run(t, configs)
		seen.Expect(t, "added default/settings")

		source.Apply(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"},
			Data:       map[string]string{"mode": "fast"},
		})
		seen.Expect(t, "updated default/settings")
		stop() // waits for the watcher
		if loaded["settings"] != "fast" {
			t.Errorf("the mode is %q", loaded["settings"])
		}
	}
	goTest(test)
	// Output: PASS
}

// An agent on a node follows only the Pods of its node. A Pod is added when it is scheduled there,
// and deleted when it is gone, as with a real API server.
func ExampleSource_fieldSelector() {
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	}
	test := func(t testing.TB) {
		source := informertest.NewSource(pod("here", "node-1"), pod("elsewhere", "node-2"), pod("pending", ""))
		pods, err := informer.NewFrom(source, informer.Options[*corev1.Pod]{
			TweakListOptions: func(opts *metav1.ListOptions) { opts.FieldSelector = "spec.nodeName=node-1" },
		})
		if err != nil {
			t.Fatal(err)
		}
		var seen informertest.Recorder[*corev1.Pod]
		if _, err := pods.AddWatcher(&seen, informer.WatcherOptions{}); err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, pods)
		seen.Expect(t, "added default/here")

		source.Apply(pod("pending", "node-1"))
		seen.Expect(t, "added default/pending")
		if _, err := source.Delete(types.NamespacedName{Namespace: "default", Name: "here"}); err != nil {
			t.Fatal(err)
		}
		seen.Expect(t, "deleted default/here")
		seen.Expect(t)
	}
	goTest(test)
	// Output: PASS
}

// The API server is away for a while. An object that is deleted meanwhile is not missed.
func ExampleSource_SetFaults() {
	test := func(t testing.TB) {
		source := informertest.NewSource(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}})
		configs, err := informer.NewFrom(source, informer.Options[*corev1.ConfigMap]{
			// In a bubble of testing/synctest the default pauses take no time either.
			Backoff: &wait.Backoff{Duration: time.Millisecond},
		})
		if err != nil {
			t.Fatal(err)
		}
		var seen informertest.Recorder[*corev1.ConfigMap]
		if _, err := configs.AddWatcher(&seen, informer.WatcherOptions{}); err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, configs)
		seen.Expect(t, "added default/settings")

		source.SetFaults(informertest.Faults{Down: true})
		_, err = source.List(metav1.ListOptions{})
		fmt.Println(errors.Is(err, syscall.ECONNREFUSED))
		if _, err := source.Delete(types.NamespacedName{Namespace: "default", Name: "settings"}); err != nil {
			t.Fatal(err)
		}
		source.SetFaults(informertest.Faults{})
		seen.Expect(t, "deleted default/settings")
	}
	goTest(test)
	// Output:
	// true
	// PASS
}
