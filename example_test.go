package informer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/indexes"
	"github.com/customcacheinformer/informer/informertest"
)

// RunController calls reconcile for every Pod that is there or changes, until ctx ends.
func RunController(ctx context.Context, client kubernetes.Interface, reconcile func(context.Context, *corev1.Pod) error) error {
	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{})
	if err != nil {
		return err
	}
	var group informer.Group
	c, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
		pod, exists, err := pods.Get(key)
		if err == nil && exists {
			err = reconcile(ctx, pod) // shared: copy it before you change it
		}
		return 0, err
	}, enqueue.Options{Name: "pods", Workers: 4}, enqueue.For(pods))
	if err != nil {
		return err
	}
	if err := errors.Join(group.Add(pods), group.Add(c)); err != nil {
		return err
	}
	return group.Run(ctx)
}

func TestRunController(t *testing.T) {
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	ctx, stop := context.WithCancel(t.Context())
	var seen string
	err := RunController(ctx, client, func(_ context.Context, pod *corev1.Pod) error {
		seen = pod.Name
		stop()
		return nil
	})
	if err != nil || seen != "web" {
		t.Errorf("reconciled %q, %v, want web", seen, err)
	}
}

func ExampleNew() {
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{
		Transform: informer.StripManagedFields[*corev1.Pod],
	})
	if err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = pods.Run(ctx) })
	defer running.Wait()
	defer stop()
	if err := pods.WaitForSync(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for key := range pods.All() {
		fmt.Println(key)
	}
	// Output: default/web
}

// PodsOfTeam returns an informer over the Pods in the namespaces with the label of a team, and a group that runs it.
func PodsOfTeam(client kubernetes.Interface, team string) (*informer.CustomCacheInformer[*corev1.Pod], *informer.Group, error) {
	namespaces, err := informer.New(client.CoreV1().Namespaces(), informer.Options[*corev1.Namespace]{
		Indexers: informer.Indexers[*corev1.Namespace]{"team": indexes.ByLabel[*corev1.Namespace]("team")},
	})
	if err != nil {
		return nil, nil, err
	}
	pods, err := informer.NewInNamespaces(client.CoreV1().Pods, nil, informer.Options[*corev1.Pod]{})
	if err != nil {
		return nil, nil, err
	}
	_, err = namespaces.AddWatcher(informer.WatcherFunc[*corev1.Namespace](func(context.Context, informer.Event[*corev1.Namespace]) error {
		var names []string
		of, err := namespaces.ByIndex("team", team)
		for _, namespace := range of {
			names = append(names, namespace.Name)
		}
		return errors.Join(err, pods.SetNamespaces(names))
	}), informer.WatcherOptions{Name: "team"})
	group := &informer.Group{}
	return pods, group, errors.Join(err, group.Add(namespaces), group.Add(pods))
}

func ExampleCustomCacheInformer_SetNamespaces() {
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}}
	client := fake.NewClientset(shop, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web"}})
	pods, group, err := PodsOfTeam(client, "a")
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = group.Run(ctx) })
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	err = pods.WaitFor(ctx, web, func(_ *corev1.Pod, exists bool) bool { return exists })
	fmt.Println("read", web, err)

	shop.Labels = nil
	_, _ = client.CoreV1().Namespaces().Update(ctx, shop, metav1.UpdateOptions{})
	err = pods.WaitFor(ctx, web, func(_ *corev1.Pod, exists bool) bool { return !exists })
	fmt.Println("left", web, err)
	stop()
	running.Wait()
	// Output:
	// read shop/web <nil>
	// left shop/web <nil>
}

func ExampleCustomCacheInformer_AddWatcher() {
	src := informertest.NewSource(object("settings", "1"))
	inf, _ := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{})
	done := make(chan struct{})
	reg, err := inf.AddWatcher(informer.WatcherFuncs[*corev1.ConfigMap]{
		AddFunc: func(_ context.Context, e informer.Event[*corev1.ConfigMap]) error {
			fmt.Println(e.Origin, e.Type, e.Key(), e.New.Data["value"])
			return nil
		},
		UpdateFunc: func(_ context.Context, e informer.Event[*corev1.ConfigMap]) error {
			fmt.Println(e.Origin, e.Type, e.Key(), e.Old.Data["value"], "to", e.New.Data["value"])
			close(done)
			return nil
		},
	}, informer.WatcherOptions{Name: "printer"})
	if err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	<-reg.Synced()
	src.Apply(object("settings", "2"))
	<-done
	stop()
	running.Wait()
	// Output:
	// initial added default/settings 1
	// watch updated default/settings 1 to 2
}

func ExampleCustomCacheInformer_ByIndex() {
	src := informertest.NewSource(object("a", "red"), object("b", "blue"), object("c", "red"))
	inf, _ := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{
		Indexers: informer.Indexers[*corev1.ConfigMap]{
			"colour": func(obj *corev1.ConfigMap) ([]string, error) { return []string{obj.Data["value"]}, nil },
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	defer running.Wait()
	defer stop()
	_ = inf.WaitForSync(ctx)
	red, err := inf.ByIndex("colour", "red")
	fmt.Println(len(red), err)
	// Output: 2 <nil>
}

func ExampleCustomCacheInformer_WaitForVersion() {
	src := informertest.NewSource[*corev1.ConfigMap]()
	inf, _ := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	defer running.Wait()
	defer stop()

	written, _ := src.Create(object("settings", "1")) // with a client in a program
	_ = inf.WaitForVersion(ctx, written.Namespace, written.ResourceVersion)
	_, exists, _ := inf.Get(types.NamespacedName{Namespace: "default", Name: "settings"})
	fmt.Println("reads what it wrote:", exists)
	// Output: reads what it wrote: true
}

func ExampleRegistration() {
	src := informertest.NewSource(object("settings", "1"))
	inf, _ := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	defer running.Wait()
	defer stop()

	var seen informertest.Recorder[*corev1.ConfigMap]
	reg, _ := inf.AddWatcher(&seen, informer.WatcherOptions{Name: "guest"})
	<-reg.Synced() // the watcher has been called for every object
	reg.Remove()
	<-reg.Stopped() // its last call has returned
	fmt.Println(reg.Stats().Delivered, "event; the informer runs on:", !inf.Health().Stopped)
	// Output: 1 event; the informer runs on: true
}

func ExampleSelect() {
	src := informertest.NewSource(object("mine", "yes"), object("other", "no"))
	inf, _ := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{})
	var seen informertest.Recorder[*corev1.ConfigMap]
	selected := informer.Select(&seen, func(obj *corev1.ConfigMap) bool { return obj.Labels["value"] == "yes" })
	reg, _ := inf.AddWatcher(selected, informer.WatcherOptions{})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	<-reg.Synced()
	stop()
	running.Wait()
	for _, e := range seen.Events() {
		fmt.Println(e.Type, e.Key())
	}
	// Output: added default/mine
}
