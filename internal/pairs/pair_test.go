package pairs

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/kinds"
	"github.com/customcacheinformer/informer/shards"
	"github.com/customcacheinformer/informer/share"
	"github.com/customcacheinformer/informer/store"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// pair is an informer with two parts.
type pair struct {
	parts    [2]string
	table    *share.Table
	durable  *informertest.Durable
	members  []informer.Member
	shared   cache.SharedIndexInformer   // runs, too, unless it is nil
	objects  func() []informer.AnyObject // of the store or the sink
	health   func() informer.Health
	snapshot func() (objects int, err error)
}

func (p *pair) has(part string) bool { return p.parts[0] == part || p.parts[1] == part }

// optionsOf returns options with the parts that are options. Each of them changes another field of the object.
func optionsOf[T informer.Object](p *pair) informer.Options[T] {
	opts := informer.Options[T]{ErrorHandler: testkit.Ignore}
	if p.has("Share") {
		opts.Share = p.table
	}
	if p.has("Omit") {
		opts.Omit = []string{"metadata.labels"}
	}
	if p.has("Transform") {
		opts.Transform = func(obj T) (T, error) {
			obj.SetAnnotations(map[string]string{"transformed": "yes"})
			return obj, nil
		}
	}
	if p.has("reducing store") {
		opts.Store = store.NewProjection(func(obj T) T {
			reduced := obj.DeepCopyObject().(T)
			reduced.SetFinalizers(nil)
			return reduced
		})
	}
	if p.has("Durable") {
		opts.Durable = p.durable
	}
	return opts
}

// build makes the informer. It makes no request.
func (p *pair) build(wire *testkit.Wire) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	config := wire.Config()
	if !p.has("framing") {
		config.WrapTransport = nil
	}
	configMaps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps
	source, opts := informer.ListWatch(configMaps("")), optionsOf[*corev1.ConfigMap](p)
	if p.has("shards") {
		leases := fake.NewClientset()
		informertest.NewSource[*coordinationv1.Lease]().Serve(&leases.Fake, "leases", &coordinationv1.LeaseList{})
		set := must(shards.New(leases.CoordinationV1().Leases("default"), shards.Options{Name: "pairs", Identity: "a", ByNamespace: true}))
		source = must(set.Source(source))
		defer func() { // a set without a worker does not join; this one begins when the informer has started
			secrets := must(informer.NewFrom(informertest.NewSource[*corev1.Secret](), informer.Options[*corev1.Secret]{}))
			worker := must(enqueue.NewController(func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil },
				enqueue.Options{Name: "secrets", Shards: set, Reads: p.members}, enqueue.For(secrets)))
			p.members = append(p.members, set, secrets, worker)
		}()
	}
	switch {
	case p.has("sink"):
		into := sink{}
		inf := must(informer.NewSink(source, into, opts))
		p.members, p.health = append(p.members, inf), inf.Health
		p.objects = func() []informer.AnyObject { return slices.Collect(maps.Values(into)) }
	case p.has("namespaces"):
		use(p, must(informer.NewInNamespaces(configMaps, []string{"default"}, opts)))
	case p.has("clusters"):
		inf := must(informer.NewOverClusters(opts, informer.ClusterOptions{}))
		use(p, inf.CustomCacheInformer)
		return inf.Engage("east", informer.ClusterSource{Source: source})
	case p.has("kinds"):
		set := must(kinds.New(kinds.Clients{Dynamic: dynamic.NewForConfigOrDie(config), Discovery: discovery{}}, kinds.Options[*unstructured.Unstructured]{
			Informer: optionsOf[*unstructured.Unstructured](p), ErrorHandler: testkit.Ignore,
		}))
		p.members = append(p.members, set)
		use(p, set.Informer().CustomCacheInformer)
		_, err = set.Acquire(kinds.Kind{Kind: "ConfigMap"})
		return err
	case p.has("drop-in") && !p.has("snapshots"): // which only the informer inside has
		p.shared = informer.ClientGo{Options: func(runtime.Object) (informer.Options[informer.AnyObject], error) {
			return optionsOf[informer.AnyObject](p), nil
		}}.NewSharedIndexInformer(source, &corev1.ConfigMap{}, 0, nil)
		p.view(p.shared)
	default:
		use(p, must(informer.NewFrom(source, opts)))
	}
	return nil
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// use has p run and read an informer.
func use[T informer.Object](p *pair, inf *informer.CustomCacheInformer[T]) {
	p.members, p.health = append(p.members, inf), inf.Health
	p.objects = func() (objs []informer.AnyObject) {
		for _, obj := range inf.All() {
			objs = append(objs, informer.AnyObject(obj))
		}
		return objs
	}
	p.snapshot = func() (int, error) {
		s, err := inf.Snapshot()
		if err != nil {
			return 0, err
		}
		all, err := s.List("", nil)
		return len(all), err
	}
	if p.has("drop-in") {
		p.view(inf.SharedIndexInformer())
	}
}

// view has p read an informer in the shape of client-go's.
func (p *pair) view(inf cache.SharedIndexInformer) {
	p.health = inf.(interface{ Health() informer.Health }).Health
	p.objects = func() (objs []informer.AnyObject) {
		for _, obj := range inf.GetStore().List() {
			objs = append(objs, obj.(informer.AnyObject))
		}
		return objs
	}
}

// works runs the informer, and returns an error unless the object reaches its store, and each part has had its effect.
func (p *pair) works(t *testing.T) error {
	wire := &testkit.Wire{Source: informertest.NewSource(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "a", Labels: map[string]string{"omitted": "yes"}, Finalizers: []string{"example.com/reduced"},
	}})}
	wire.Odd(func(req *http.Request) testkit.Answer {
		if strings.HasPrefix(req.URL.Path, "/apis/") { // CRDs and APIServices
			return testkit.Refuses(http.StatusForbidden, metav1.StatusReasonForbidden)
		}
		return nil
	})
	p.table, p.durable = share.New(), informertest.NewDurable()
	if err := p.build(wire); err != nil {
		return err
	}
	if p.shared != nil {
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { p.shared.RunWithContext(ctx); close(stopped) }()
		t.Cleanup(func() { stop(); <-stopped })
		synctest.Wait()
	}
	var group informer.Group
	for _, m := range p.members {
		if err := group.Add(m); err != nil {
			return err
		}
	}
	if len(p.members) > 0 {
		informertest.Run(t, &group)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	objs := p.objects()
	if len(objs) != 1 {
		return fmt.Errorf("%d objects: %w", len(objs), p.health().SourceError)
	}
	stored, _ := p.durable.Scan(t.Context(), "", 10)
	for part, got := range map[string]bool{
		"framing":        p.health().Decoding.Objects > 0,
		"Share":          p.table.Stats().Objects > 0,
		"Omit":           objs[0].GetLabels() == nil,
		"Transform":      objs[0].GetAnnotations()["transformed"] == "yes",
		"reducing store": objs[0].GetFinalizers() == nil,
		"Durable":        len(stored) == 1,
	} {
		if got != p.has(part) {
			return fmt.Errorf("%s has an effect: %t", part, got)
		}
	}
	if p.has("snapshots") {
		if n, err := p.snapshot(); err != nil || n != 1 {
			return fmt.Errorf("%d objects in the snapshot: %w", n, err)
		}
	}
	return nil
}

// sink keeps the objects.
type sink map[string]informer.AnyObject

func (s sink) Put(_ context.Context, key string, obj *corev1.ConfigMap) error {
	s[key] = obj
	return nil
}

func (s sink) Remove(_ context.Context, key string, _ types.UID) error {
	delete(s, key)
	return nil
}

// discovery shows ConfigMaps.
type discovery struct{}

func (discovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return []*metav1.APIGroup{{Name: "apps"}}, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}},
	}}}, nil
}
