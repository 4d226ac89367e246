package chaos_test

import (
	"errors"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

const (
	paged  = "in pages"
	comets = "comets"
	beta   = "comets, v1beta1"
)

// followAll adds followers of all sorts.
func (w *world) followAll() {
	widgets, gadgets, kept := w.kinds[0].resource(), w.kinds[1].resource(), w.kinds[2].resources()
	w.follow(scope{name: "DeltaFIFO", resource: widgets}, options{Queue: informer.QueueDeltaFIFO})
	w.follow(scope{name: "RealFIFO", resource: widgets}, options{Queue: informer.QueueRealFIFO, Intake: informer.IntakeEarly})
	w.follow(scope{name: "plain store", resource: widgets}, options{Store: plain{cache.NewStore(cache.MetaNamespaceKeyFunc)}, WatchList: informer.WatchListOff})
	w.follow(scope{name: paged, resource: widgets}, options{PageSize: 50, WatchList: informer.WatchListOff, Intake: informer.IntakeEarly})
	w.follow(scope{name: "namespace", resource: widgets, namespace: namespaces[0]}, options{})
	w.follow(scope{name: "selector", resource: gadgets, selector: colour + "=" + colours[0]}, options{})
	w.follow(scope{name: comets, resource: kept[0]}, options{})
	w.follow(scope{name: beta, resource: kept[1]}, options{Queue: informer.QueueRealFIFO})
	w.followMetadata(scope{name: "metadata", resource: gadgets})
	w.followFile(scope{name: "disk", resource: gadgets})
	w.followDurable(scope{name: "durable", resource: widgets}, informer.WatchListOff)
	w.followDurable(scope{name: "durable, streamed", resource: gadgets}, informer.WatchListOn)
	for _, f := range w.followers {
		f.start()
		for range 2 {
			w.visiting.Go(f.visit)
		}
	}
}

type options = informer.Options[object]

func newFollowing[T informer.Object](w *world, s scope, source cache.ListerWatcher) *following[T] {
	f := &following[T]{
		world: w, scope: s, source: source, alive: map[types.UID]bool{}, gone: map[types.UID]bool{},
	}
	w.followers = append(w.followers, f)
	return f
}

func (w *world) follow(s scope, opts options) *following[object] {
	client, err := dynamic.NewForConfig(w.proxy.Config())
	w.OK(err)
	f := newFollowing[object](w, s, informer.ListWatch(client.Resource(s.resource).Namespace(s.namespace)))
	f.options = opts
	f.options.TweakListOptions = func(o *metav1.ListOptions) { o.LabelSelector = s.selector }
	return f
}

func (w *world) followMetadata(s scope) {
	client, err := metadata.NewForConfig(w.proxy.Config())
	w.OK(err)
	newFollowing[*metav1.PartialObjectMetadata](w, s, informer.ListWatch(client.Resource(s.resource)))
}

// followFile adds a follower with a store on disk. A crash does not affect that store here;
// TestAKilledProcessMissesNothing covers that.
func (w *world) followFile(s scope) {
	path := filepath.Join(w.TempDir(), "objects.db")
	var file *disk.Store
	f := w.follow(s, options{})
	f.open = func() informer.Durable {
		var err error
		file, err = disk.Open(path, &unstructured.Unstructured{}, disk.Options{
			Identity:     store.Identity{Cluster: "e2e", Resource: s.resource.String()},
			ErrorHandler: func(err error) { f.fail(err) },
		})
		w.OK(err)
		return file
	}
	f.ended = func() {
		if err := file.Close(); err != nil {
			f.fail(err)
		}
	}
}

// followDurable adds a follower with a store that crashes.
func (w *world) followDurable(s scope, mode informer.WatchListMode) {
	store := informertest.NewDurable()
	f := w.follow(s, options{WatchList: mode})
	f.open = func() informer.Durable { return store }
	f.ended = func() {
		if err := store.Err(); err != nil {
			f.fail(err)
		}
		store = store.Reopen()
	}
	f.kill = func() { store.Crash() }
}

// plain is a store that can do only what an informer requires.
type plain struct{ cache.Store }

func (plain) Replace([]any, string) error { return errors.New("Replace must not be called") }
