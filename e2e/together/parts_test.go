package together_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/kinds"
	"github.com/customcacheinformer/informer/relay"
	"github.com/customcacheinformer/informer/shards"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

// build adds all parts to the group. Those that are not members run until w.ctx ends.
func (w *world) build() {
	east, west := w.clusters[0], w.clusters[1]
	w.overClusters()
	w.sink(east)
	w.durable(west)
	w.namespaces(east)
	w.kinds(west)
	w.shards(east)
	w.relayed(west)
	w.factory(west)
	w.controllerRuntime(east)
}

// options returns options with those parts that are options.
func (w *world) options(name string) informer.Options[*corev1.Pod] {
	return informer.Options[*corev1.Pod]{
		Name: name, Share: w.table, Omit: []string{"metadata.managedFields"},
		Transform: func(pod *corev1.Pod) (*corev1.Pod, error) { pod.Annotations = nil; return pod, nil },
	}
}

// must ends the program if there is an error. The processes of the clusters end with it.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// add adds members to the group.
func (w *world) add(members ...informer.Member) {
	w.Helper()
	for _, m := range members {
		w.OK(w.group.Add(m))
	}
}

// seen keeps the newest version of each key.
type seen struct {
	mu  sync.Mutex
	all versions
}

func newSeen() *seen { return &seen{all: versions{}} }

func (s *seen) put(key, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version == "" {
		delete(s.all, key)
	} else {
		s.all[key] = version
	}
}

func (s *seen) read() (versions, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.all), nil
}

// of returns the versions of objects of a cluster.
func of[T metav1.Object](c *cluster, objs iter.Seq[T]) versions {
	all := versions{}
	for obj := range objs {
		all[c.name+"/"+obj.GetNamespace()+"/"+obj.GetName()] = obj.GetResourceVersion()
	}
	return all
}

// listed returns the versions of the objects of a reader.
func listed[T informer.Object](c *cluster, list func(string, labels.Selector) ([]T, error)) (versions, error) {
	objs, err := list("", nil)
	return of(c, slices.Values(objs)), err
}

// viewList adds a view that has the objects of a reader.
func viewList[T informer.Object](w *world, name string, c *cluster, list func(string, labels.Selector) ([]T, error)) {
	w.views = append(w.views, view{name: name, of: []*cluster{c}, read: func() (versions, error) { return listed(c, list) }})
}

// overClusters is an informer over both clusters, which is read by snapshots and by a controller.
func (w *world) overClusters() {
	over := must(informer.NewOverClusters(w.options("over clusters"), informer.ClusterOptions{}))
	for _, c := range w.clusters {
		w.OK(over.Engage(c.name, informer.ClusterSource{Source: informer.ListWatch(c.client.CoreV1().Pods("")), UID: types.UID(c.name)}))
	}
	reconciled := newSeen()
	controller := must(enqueue.NewController(func(_ context.Context, key enqueue.Key) (time.Duration, error) {
		pod, exists, err := over.In(key.Cluster).Get(key.NamespacedName)
		version := ""
		if exists {
			version = pod.ResourceVersion
		}
		reconciled.put(key.Cluster+"/"+key.NamespacedName.String(), version)
		return 0, err
	}, enqueue.Options{Name: "over clusters, controller", Workers: 4}, enqueue.InClusters(enqueue.For(over.CustomCacheInformer))))
	w.add(over, controller)
	w.views = append(w.views,
		view{name: "controller", of: w.clusters, read: reconciled.read},
		view{name: "over clusters", of: w.clusters, read: func() (versions, error) {
			snapshot, err := over.Snapshot()
			if err != nil {
				return nil, err
			}
			all := versions{}
			for _, c := range w.clusters {
				some, err := listed(c, snapshot.In(c.name).List)
				if err != nil {
					return nil, err
				}
				maps.Copy(all, some)
			}
			return all, nil
		}})
}

// sink has the newest version of each Pod.
type sink struct {
	*seen
	cluster string
}

func (s sink) Put(_ context.Context, key string, pod *corev1.Pod) error {
	s.put(s.cluster+"/"+key, pod.ResourceVersion)
	return nil
}

func (s sink) Remove(_ context.Context, key string, _ types.UID) error {
	s.put(s.cluster+"/"+key, "")
	return nil
}

func (w *world) sink(c *cluster) {
	into := sink{newSeen(), c.name}
	w.add(must(informer.NewSink(informer.ListWatch(c.client.CoreV1().Pods("")), into, w.options("sink"))))
	w.views = append(w.views, view{name: "sink", of: []*cluster{c}, read: into.read})
}

func (w *world) durable(c *cluster) {
	file := must(disk.Open(filepath.Join(w.TempDir(), "pods.db"), &corev1.Pod{}, disk.Options{
		Identity: store.Identity{Cluster: c.name}, Durability: disk.SurviveProcess,
	}))
	w.Cleanup(func() {
		w.stop() // an informer must not write to a closed file
		w.OK(file.Close())
	})
	opts := w.options("on disk")
	opts.Durable = file
	inf := must(informer.New(c.client.CoreV1().Pods(""), opts))
	w.add(inf)
	viewList(w, "on disk", c, inf.List)
}

// namespaces is an informer over half of the namespaces, in client-go's shape. The halves take turns.
func (w *world) namespaces(c *cluster) {
	var state versions
	w.OK(c.Ask(false, &state))
	names := map[string]bool{}
	for key := range state {
		name, _, _ := strings.Cut(key, "/")
		names[name] = true
	}
	var halves [2][]string
	for n, name := range slices.Sorted(maps.Keys(names)) {
		halves[n%2] = append(halves[n%2], name)
	}
	turn := 0
	inf := must(informer.NewInNamespaces(c.client.CoreV1().Pods, halves[turn], w.options("namespaces")))
	handled := newSeen()
	put := func(obj any) {
		p := obj.(*corev1.Pod)
		handled.put(c.name+"/"+p.Namespace+"/"+p.Name, p.ResourceVersion)
	}
	_, err := inf.SharedIndexInformer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: put, UpdateFunc: func(_, obj any) { put(obj) },
		DeleteFunc: func(obj any) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			if err != nil {
				w.Error(err)
			}
			handled.put(c.name+"/"+key, "")
		},
	})
	w.OK(err)
	w.add(inf)
	w.views = append(w.views, view{name: "handler over namespaces", of: []*cluster{c}, read: handled.read, has: func(key string) bool {
		name, _, _ := strings.Cut(key, "/")
		return slices.Contains(halves[turn], name)
	}})
	w.churn = append(w.churn, func() { turn = 1 - turn; w.OK(inf.SetNamespaces(halves[turn])) })
}

// offers is the discovery of a cluster, which the API server of the tests lacks.
type offers struct{ noGadgets atomic.Bool }

func (o *offers) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	verbs := metav1.Verbs{"list", "watch"}
	lists := []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: verbs}}}}
	if !o.noGadgets.Load() {
		lists = append(lists, &metav1.APIResourceList{GroupVersion: gadgetKind.GroupVersion().String(), APIResources: []metav1.APIResource{
			{Name: "gadgets", Kind: gadgetKind.Kind, Namespaced: true, Verbs: verbs},
		}})
	}
	return []*metav1.APIGroup{{Name: gadgetKind.Group}}, lists, nil
}

// kinds is a set of kinds: the Pods, and a kind that comes and goes.
func (w *world) kinds(c *cluster) {
	client := dynamic.NewForConfigOrDie(c.json)
	var offered offers
	set := must(kinds.New(kinds.Clients{Dynamic: client, Discovery: &offered}, kinds.Options[*unstructured.Unstructured]{
		Informer:     informer.Options[*unstructured.Unstructured]{Share: w.table, Omit: []string{"metadata.managedFields"}},
		ErrorHandler: func(context.Context, error) {},
	}))
	lease := must(set.Acquire(kinds.Kind{Kind: "Pod"}))
	gadgets := must(set.Acquire(kinds.Kind{Group: gadgetKind.Group, Kind: gadgetKind.Kind}))
	w.add(set.Informer(), set)
	viewList(w, "kinds", c, lease.List)
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	var crd *unstructured.Unstructured
	w.churn = append(w.churn, func() {
		if crd == nil {
			crd = must(crds.Get(w.ctx, "gadgets."+gadgetKind.Group, metav1.GetOptions{}))
			crd.SetUID("")
			crd.SetResourceVersion("")
			offered.noGadgets.Store(true)
			w.OK(crds.Delete(w.ctx, crd.GetName(), metav1.DeleteOptions{}))
			w.Await("the kind stays", func() bool { _, err := gadgets.List("", nil); return errors.Is(err, informer.ErrNotEngaged) })
			return
		}
		_, err := crds.Create(w.ctx, crd, metav1.CreateOptions{})
		w.OK(err)
		offered.noGadgets.Store(false)
		crd = nil
		w.synced(gadgets)
	})
}

// shards are two replicas, which divide the Pods by their namespaces. One of them comes and goes.
func (w *world) shards(c *cluster) {
	leases := must(kubernetes.NewForConfig(c.json)).CoordinationV1().Leases("default") // a stand-in, which has no protobuf
	replica := func(identity string) (*informer.CustomCacheInformer[*corev1.Pod], *shards.Set, []informer.Member) {
		set := must(shards.New(leases, shards.Options{Name: "together", Identity: identity, ByNamespace: true, LeaseDuration: 5 * time.Second, RenewEvery: time.Second}))
		inf := must(informer.NewFrom(must(set.Source(informer.ListWatch(c.client.CoreV1().Pods("")))), w.options("shard of "+identity)))
		controller := must(enqueue.NewController(func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil },
			enqueue.Options{Name: "shards", Shards: set}, enqueue.For(inf)))
		return inf, set, []informer.Member{set, inf, controller}
	}
	stays, set, members := replica("stays")
	w.add(members...)
	goes, stop := stays, func() {}
	w.churn = append(w.churn, func() {
		if goes != stays {
			goes = stays
			stop()
			return
		}
		inf, _, members := replica("goes")
		group := &informer.Group{ErrorHandler: func(context.Context, error) {}}
		for _, m := range members {
			w.OK(group.Add(m))
		}
		goes, stop = inf, w.run(group.Run)
	})
	w.views = append(w.views, view{name: "shards", of: []*cluster{c}, read: func() (versions, error) {
		all, err := listed(c, stays.List)
		if err != nil || goes == stays {
			return all, err
		}
		others, err := listed(c, goes.List)
		if len(all) == 0 || len(others) == 0 {
			return nil, fmt.Errorf("a replica has no Pods: %+v", set.Health())
		}
		maps.Copy(all, others)
		return all, err
	}})
}

// relayed is an informer whose server is a relay.
func (w *world) relayed(c *cluster) {
	serving, config, err := front.Local()
	w.OK(err)
	r := must(relay.New(relay.Options{
		Upstream: c.json, Serving: serving,
		Resources: []relay.Resource{{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", Namespaced: true}},
	}))
	w.run(r.Run)
	config.Wrap(informer.Transport)
	inf := must(informer.New(must(kubernetes.NewForConfig(config)).CoreV1().Pods(""), w.options("through a relay")))
	w.add(inf)
	viewList(w, "relay", c, inf.List)
}

// factory is a factory of client-go.
func (w *world) factory(c *cluster) {
	factory := informers.NewSharedInformerFactory(c.client, 0)
	factory.InformerFor(&corev1.Pod{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return informer.ClientGo{Share: w.table, Group: &w.group}.NewSharedIndexInformer(informer.ListWatch(client.CoreV1().Pods("")), &corev1.Pod{}, resync, nil)
	})
	pods := factory.Core().V1().Pods().Lister()
	factory.Start(w.ctx.Done())
	w.run(func(ctx context.Context) error { <-ctx.Done(); factory.Shutdown(); return nil })
	w.views = append(w.views, view{name: "factory", of: []*cluster{c}, read: func() (versions, error) {
		all, err := pods.List(labels.Everything())
		return of(c, slices.Values(all)), err
	}})
}

// controllerRuntime is a cache of controller-runtime.
func (w *world) controllerRuntime(c *cluster) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	pods := must(crcache.New(protobuf(c.json), crcache.Options{
		Mapper:      mapper,
		NewInformer: informer.ClientGo{Share: w.table, Group: &w.group}.NewSharedIndexInformer, DefaultUnsafeDisableDeepCopy: new(true),
	}))
	_, err := pods.GetInformer(w.ctx, &corev1.Pod{}) // otherwise the first List would make it
	w.OK(err)
	w.run(pods.Start)
	w.views = append(w.views, view{name: "controller-runtime", of: []*cluster{c}, read: func() (versions, error) {
		ctx, cancel := context.WithTimeout(w.ctx, time.Second) // List waits for a sync
		defer cancel()
		var list corev1.PodList
		err := pods.List(ctx, &list, client.UnsafeDisableDeepCopy)
		return of(c, func(yield func(*corev1.Pod) bool) {
			for i := range list.Items {
				if !yield(&list.Items[i]) {
					return
				}
			}
		}), err
	}})
}
