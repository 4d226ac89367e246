package size_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/mix"
	"github.com/customcacheinformer/informer/share"
)

// within is how far the estimate may be from the heap.
const within = 0.15

func TestHealthIsNearTheHeap(t *testing.T) {
	n := 4000
	if testing.Short() {
		n = 2000
	}
	for name, of := range map[string]func(m *mix.Mix, i int) (kruntime.Object, informer.AnyObject){
		"Pods":  func(m *mix.Mix, i int) (kruntime.Object, informer.AnyObject) { return m.Pod(i, 0), &corev1.Pod{} },
		"Nodes": func(m *mix.Mix, i int) (kruntime.Object, informer.AnyObject) { return m.Node(i), &corev1.Node{} },
		"ConfigMaps": func(m *mix.Mix, i int) (kruntime.Object, informer.AnyObject) {
			return m.ConfigMap(i), &corev1.ConfigMap{}
		},
		"Secrets": func(m *mix.Mix, i int) (kruntime.Object, informer.AnyObject) {
			return secret(m.ConfigMap(i)), &corev1.Secret{}
		},
		"unstructured": func(m *mix.Mix, i int) (kruntime.Object, informer.AnyObject) {
			pod := m.Pod(i, 0)
			pod.APIVersion, pod.Kind = "v1", "Pod"
			return pod, &unstructured.Unstructured{}
		},
	} {
		for _, sharing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, sharing %t", name, sharing), func(t *testing.T) {
				count := n
				if name == "Nodes" || name == "unstructured" { // they are large
					count = 1000
				}
				checkHeap(t, count, sharing, of)
			})
		}
	}
}

func secret(c *corev1.ConfigMap) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: c.ObjectMeta, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{}}
	for k, v := range c.Data {
		s.Data[k] = []byte(v)
	}
	return s
}

// checkHeap runs an informer over n objects that are decoded from JSON, and compares its Health with the heap.
func checkHeap(t *testing.T, n int, sharing bool, of func(m *mix.Mix, i int) (kruntime.Object, informer.AnyObject)) {
	var table *share.Table
	if sharing {
		table = share.New()
	}
	cluster := mix.New(1, n)
	before := heap()
	inf, err := informer.NewFrom(streamOf(t, n, func(i int) kruntime.Object {
		from, to := of(cluster, i)
		raw, err := json.Marshal(from)
		if err == nil {
			err = json.Unmarshal(raw, to)
		}
		if err != nil {
			t.Error(err)
		}
		to.SetResourceVersion(fmt.Sprint(i + 1))
		return to.(kruntime.Object)
	}), informer.Options[informer.AnyObject]{Share: table, WatchList: informer.WatchListOn})
	if err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, inf)
	took := float64(heap() - before)
	h := inf.Health()
	if sharing {
		took -= float64(table.Stats().TableBytes)
	}
	runtime.KeepAlive(cluster)
	off := float64(h.Memory.Objects)/took - 1
	t.Logf("%d objects: %.1f MB on the heap, estimated %.1f MB (%+.1f %%), %v", h.Objects, took/1e6, float64(h.Memory.Objects)/1e6, 100*off, h.Memory)
	if h.Objects != n || off < -within || off > within {
		t.Errorf("%d objects, the estimate is off by %.1f %%", h.Objects, 100*off)
	}
	if saves := h.Memory.Saved > 0; saves != sharing {
		t.Errorf("saved: %d bytes", h.Memory.Saved)
	}
}

// streamOf returns a source that streams n objects as its first state. They are made one by one.
func streamOf(t *testing.T, n int, object func(i int) kruntime.Object) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (kruntime.Object, error) {
			t.Error("it lists")
			return nil, context.Canceled
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			events := make(chan watch.Event)
			go func() {
				send := func(e watch.Event) {
					select {
					case events <- e:
					case <-ctx.Done():
					}
				}
				if opts.SendInitialEvents != nil {
					for i := range n {
						send(watch.Event{Type: watch.Added, Object: object(i)})
					}
					end := object(0).(informer.AnyObject)
					end.SetResourceVersion(fmt.Sprint(n))
					end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
					send(watch.Event{Type: watch.Bookmark, Object: end.(kruntime.Object)})
				}
				<-ctx.Done()
			}()
			return watch.NewProxyWatcher(events), nil
		},
	}
}

// A list that is taken in as a whole is in memory as a whole, one that is taken in early is not.
func TestHealthHasThePeakOfAList(t *testing.T) {
	src := streamOf(t, 60_000, func(i int) kruntime.Object {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%06d", i), ResourceVersion: fmt.Sprint(i + 1)},
			Data:       map[string]string{"a": strings.Repeat("x", 100)},
		}
	})
	for name, intake := range map[string]informer.IntakeMode{"whole": informer.IntakeWhole, "early": informer.IntakeEarly} {
		inf, err := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{Intake: intake, WatchList: informer.WatchListOn})
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		m := inf.Health().Memory
		part := float64(m.ListPeak) / float64(m.Objects)
		t.Logf("%s: %v", name, m)
		if whole := part > 0.8 && part < 1.1; m.Objects < 60_000*400 || whole != (intake == informer.IntakeWhole) || part > 1.1 {
			t.Errorf("%s: %v", name, m)
		}
	}
}

func TestObjectsThatAreNotInMemoryTakeNone(t *testing.T) {
	src := informertest.NewSource[informer.AnyObject](&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}})
	for name, opts := range map[string]informer.Options[informer.AnyObject]{
		"in memory": {},
		"a store":   {Store: cache.NewStore(cache.MetaNamespaceKeyFunc)},
		"a Durable": {Durable: informertest.NewDurable()},
	} {
		inf, err := informer.NewFrom(src, opts)
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, inf)
		if m := inf.Health().Memory; (m.Objects > 0) != (opts.Durable == nil) {
			t.Errorf("%s: %v", name, m)
		}
	}
	sink, err := informer.NewSink[informer.AnyObject](src, nowhere{}, informer.Options[informer.AnyObject]{})
	if err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, sink)
	if h := sink.Health(); h.Memory.Objects != 0 || h.Objects != 1 {
		t.Errorf("a sink of %d objects: %v", h.Objects, h.Memory)
	}
}

// nowhere is a sink that keeps nothing.
type nowhere struct{}

func (nowhere) Put(context.Context, string, informer.AnyObject) error { return nil }

func (nowhere) Remove(context.Context, string, types.UID) error { return nil }
