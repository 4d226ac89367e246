package together_test

import (
	"context"
	"log"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/internal/mix"
)

var (
	leaseKind  = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	gadgetKind = schema.GroupVersionKind{Group: "together.example.com", Version: "v1", Kind: "Gadget"}
)

// settings are the argument of the role of a cluster.
type settings struct {
	Seed       uint64
	Pods, Rate int
}

// writer changes the Pods of a cluster.
type writer struct {
	settings
	client kubernetes.Interface

	mu      sync.Mutex // held during a change
	resting bool
	failed  error // of the latest change
	mix     *mix.Mix
	updates []int // of each Pod since it was created
}

// serve is an API server that changes its Pods, except while it rests. The parent lets it rest, or not, and gets the
// versions of its Pods, by key.
func serve(s settings) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	server, err := apiserver.StartWithPods(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	for _, kind := range []schema.GroupVersionKind{leaseKind, gadgetKind} {
		if _, err := server.Install(ctx, apiserver.Kind{GroupVersionKind: kind}); err != nil {
			return err
		}
	}
	w := &writer{settings: s, mix: mix.New(s.Seed, s.Pods), updates: make([]int, s.Pods)}
	if w.client, err = kubernetes.NewForConfig(server.Config()); err != nil {
		return err
	}
	if err := lab.Divide(s.Pods, 8, func(i int) error { return w.create(ctx, i) }); err != nil {
		return err
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for random := rand.New(rand.NewPCG(s.Seed, 1)); stage.Pass(ctx, time.Second/time.Duration(s.Rate)); {
			if err := w.change(ctx, random); err != nil && ctx.Err() == nil {
				log.Print(err)
			}
		}
	})
	defer cancel()
	if err := lab.Tell(process.AddressOf(server.Config())); err != nil {
		return err
	}
	return lab.Answer(func(rest bool) (map[string]string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.resting = rest
		if w.failed != nil {
			return nil, w.failed
		}
		list, err := w.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		versions := map[string]string{}
		for _, pod := range list.Items {
			versions[pod.Namespace+"/"+pod.Name] = pod.ResourceVersion
		}
		return versions, nil
	})
}

// create creates the i-th Pod. Its status needs a second request.
func (w *writer) create(ctx context.Context, i int) error {
	w.mu.Lock()
	pod := w.mix.Pod(i, 0)
	w.mu.Unlock()
	pod.UID, pod.ResourceVersion = "", ""
	if _, err := w.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := w.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// change changes the status of a random Pod. Every tenth time it replaces the Pod by another one of its name.
func (w *writer) change(ctx context.Context, random *rand.Rand) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resting {
		return nil
	}
	defer func() { w.failed = err }()
	i := random.IntN(w.Pods)
	if random.IntN(10) > 0 {
		w.updates[i]++
	} else {
		w.updates[i] = 0
	}
	pod := w.mix.Pod(i, w.updates[i])
	pod.UID, pod.ResourceVersion = "", ""
	client := w.client.CoreV1().Pods(pod.Namespace)
	if w.updates[i] == 0 {
		if err := client.Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if _, err := client.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	_, err = client.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}
