package disk_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

func openPods(ctx context.Context, client kubernetes.Interface, path string) (*disk.Store, error) {
	cluster, err := store.ClusterUID(ctx, client.CoreV1().Namespaces())
	if err != nil {
		return nil, err
	}
	return disk.Open(path, &corev1.Pod{}, disk.Options{
		Identity: store.Identity{Cluster: cluster, Resource: "pods"},
	})
}

func TestTheCodeInTheDocumentationOpensAStore(t *testing.T) {
	s, err := openPods(t.Context(), fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "1234"}}), newPath(t))
	must(t, err)
	noError(t, s.Close())
}

// A program that is restarted gets the objects of the file, and the deletes that happened
// while it was down. It does not list the source: it asks for one object, to see whether the server
// has gone back in time, and watches.
func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	named := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	src := informertest.NewSource(named("first"))

	run := func(until string) {
		store, err := disk.Open(filepath.Join(dir, "configmaps.db"), &corev1.ConfigMap{}, disk.Options{
			Identity: store.Identity{Cluster: "example", Resource: "configmaps"},
		})
		if err != nil {
			panic(err)
		}
		inf, err := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{Durable: store})
		if err != nil {
			panic(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		told := make(chan struct{})
		watcher := informer.WatcherFunc[*corev1.ConfigMap](func(_ context.Context, e informer.Event[*corev1.ConfigMap]) error {
			fmt.Println(e.Type, e.Key().Name)
			if e.Type.String()+" "+e.Key().Name == until {
				close(told)
			}
			return nil
		})
		if _, err := inf.AddWatcher(watcher, informer.WatcherOptions{}); err != nil {
			panic(err)
		}
		var running sync.WaitGroup
		running.Go(func() { _ = inf.Run(ctx) })
		<-told
		// Once the informer has synced, the file has the version from which the next start continues.
		if err := inf.WaitForSync(ctx); err != nil {
			panic(err)
		}
		stop()
		running.Wait()
		if err := store.Close(); err != nil {
			panic(err)
		}
	}
	fmt.Println("The first start:")
	run("added first")
	if _, err := src.Delete(types.NamespacedName{Namespace: "default", Name: "first"}); err != nil {
		panic(err)
	}
	src.Apply(named("second"))
	before := len(src.Requests())
	fmt.Println("The second start:")
	run("added second")
	request := src.Requests()[before]
	fmt.Println("its first request:", request.Verb, "limit", request.Options.Limit)
	// Output:
	// The first start:
	// added first
	// The second start:
	// added first
	// deleted first
	// added second
	// its first request: list limit 1
}
