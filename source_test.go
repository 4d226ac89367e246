package informer_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

func TestAClientOfAnotherTypeDoesNotCompile(t *testing.T) {
	for dir, wanted := range map[string]string{"right": "", "wrong": "informer.Options[*corev1.ConfigMap]"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "./testdata/typed/"+dir)
		out, err := cmd.CombinedOutput()
		if (err != nil) != (wanted != "") || !strings.Contains(string(out), wanted) {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
	}
}

// A source whose lists are of another type is no empty source, also while it has no objects.
func TestAnEmptyListOfAnotherTypeIsAnError(t *testing.T) {
	client := fake.NewClientset()
	lists := map[string]cache.ListerWatcher{
		"a list":   informer.ListWatch(client.CoreV1().Pods("")),
		"a stream": podStream{},
	}
	for name, lw := range lists {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failures []error
				inf, err := informer.NewFrom(lw, options{ErrorHandler: func(_ context.Context, err error) { failures = append(failures, err) }})
				if err != nil {
					t.Fatal(err)
				}
				start(t, inf)
				time.Sleep(time.Second)
				synctest.Wait()
				if inf.HasSynced() {
					t.Error("it has synced")
				}
				var failed *informer.WatchError
				if len(failures) != 1 || !errors.As(failures[0], &failed) || failed.Op != "list" ||
					!strings.Contains(failed.Error(), "*v1.Pod is not of the informer's type, *v1.ConfigMap") {
					t.Errorf("failures: %v", failures)
				}
			})
		})
	}
}

// podStream is a source without objects that streams its first state.
type podStream struct{ cache.ListerWatcher }

func (podStream) List(metav1.ListOptions) (runtime.Object, error) {
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
}

func (podStream) Watch(metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
	w.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	return w, nil
}
