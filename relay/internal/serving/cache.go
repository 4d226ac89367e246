package serving

import (
	"context"
	"errors"
	"path"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/client-go/tools/cache"
)

// watchCache answers reads of one resource only from memory. It is a storage.Interface, because
// registry.Store needs one. Nothing calls its other methods.
//
// kube-apiserver uses a cacher.CacheDelegator here, which asks the storage for everything that the
// cacher does not have. But this storage does not have more. Without a delegator, there is also no
// goroutine that compares the cacher with the storage every five minutes (DetectCacheInconsistency),
// no GET without a resourceVersion reaches the storage, and no list does while the cacher is not
// ready. Reads of older versions and continue tokens get the cacher's snapshots
// (ListFromCacheSnapshot, on by default), or 410 if these are gone.
//
// A cacher cannot handle versions that go back: it would send bookmarks of versions that are lost.
// (kube-apiserver is stopped before its etcd is restored.) So watchCache replaces the cacher then.
type watchCache struct {
	storage.Interface
	config  cacher.Config // without the storage
	current atomic.Pointer[generation]
	ahead   *ahead
	probe   string // the key of no object
	stop    context.CancelFunc
	keeping sync.WaitGroup
}

type generation struct {
	*cacher.Cacher
	source *source
}

// newWatchCache returns the cache of a resource. The cache begins to watch the storage at once. The
// caller must call close.
func newWatchCache(r *Resource, t *types, all []field) (*watchCache, error) {
	config := cacher.Config{
		Versioner:     r.Storage.Versioner(),
		GroupResource: r.GroupResource(),
		// The cacher keeps the changes of this time, and its snapshots, as long as they fit into a
		// buffer, which grows with the rate of changes up to 100 Ki events.
		EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix:      r.prefix(),
		KeyFunc:             keyFunc(r),
		GetAttrsFunc:        attributes(r.Namespaced, all),
		NewFunc:             newFunc(t, r, false),
		NewListFunc:         newFunc(t, r, true),
		Codec:               t.codec(r),
	}
	for _, f := range all {
		if f.name == r.Index {
			index(&config, f)
		}
	}
	c := &watchCache{Interface: r.Storage, config: config, ahead: newAhead(r.Reached), probe: r.prefix() + "/-/-"}
	first, err := c.begin()
	if err != nil {
		return nil, err
	}
	c.current.Store(first)
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.keeping.Go(func() { c.keep(ctx) })
	return c, nil
}

func (c *watchCache) begin() (*generation, error) {
	config, from := c.config, newSource(c.Interface)
	config.Storage = from
	made, err := cacher.NewCacherFromConfig(config)
	if err != nil {
		from.stop()
		return nil, err
	}
	return &generation{made, from}, nil
}

// end stops the cacher, and waits for its reflector. It does not wait for the cacher's other
// goroutines, which also end. Goroutines of reads that wait for a version live up to 3 s longer.
func (g *generation) end() {
	g.source.stop()
	g.Stop()
	g.source.watches.Wait()
}

// keep replaces the cacher whenever the storage has gone back, until ctx ends.
func (c *watchCache) keep(ctx context.Context) {
	for {
		now := c.current.Load()
		select {
		case <-now.source.back:
		case <-ctx.Done():
			now.end()
			return
		}
		next, err := c.begin()
		if err != nil {
			panic(err) // newWatchCache has made one
		}
		c.current.Store(next)
		now.end()
	}
}

// index makes the cacher index the field. A change then wakes only the watches of its values, and a
// list by value reads only the objects with that value.
func index(config *cacher.Config, f field) {
	config.IndexerFuncs = storage.IndexerFuncs{f.name: func(obj runtime.Object) string {
		value, _ := f.of(obj) // the cacher has not let in an object for which this fails
		return value
	}}
	config.Indexers = &cache.Indexers{storage.FieldIndex(f.name): func(obj any) ([]string, error) {
		value, err := f.of(obj.(runtime.Object))
		return []string{value}, err
	}}
}

// close ends the cacher, and blocks as generation.end does.
func (c *watchCache) close() {
	c.stop()
	c.keeping.Wait()
}

// Get implements storage.Interface.
func (c *watchCache) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	// Before its first state, the cacher would answer that no object exists.
	now := c.current.Load()
	if !now.Ready() {
		return apierrors.NewTooManyRequests("the relay has no state yet", 1)
	}
	// "" is 0 here: the state that the cacher has.
	return c.ahead.explain(ctx, opts.ResourceVersion, now.Get(ctx, key, opts, out))
}

// GetList implements storage.Interface.
func (c *watchCache) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	// A list of one name is a read by key, for which the cacher has no snapshots.
	if !opts.Recursive && opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		key, opts.Recursive = path.Dir(key), true
	}
	if _, _, err := storage.ValidateListOptions(key, c.Versioner(), opts); err != nil {
		return err
	}
	return c.ahead.explain(ctx, opts.ResourceVersion, c.current.Load().GetList(ctx, key, opts, out))
}

// Watch implements storage.Interface.
func (c *watchCache) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if _, err := c.Versioner().ParseResourceVersion(opts.ResourceVersion); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	err := c.awaitVersion(ctx, opts.ResourceVersion)
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	// From a version that it does not have, the cacher would be silent until the source has made as many changes as are missing,
	// and a source that is restored meanwhile may never do so. With initial events, the error would be the first event.
	if err != nil && (initial || !storage.IsTooLargeResourceVersion(err)) {
		return nil, err
	}
	return c.current.Load().Watch(ctx, key, opts)
}

// awaitVersion waits up to 3 s until the cacher has a version. If the cacher still does not have it,
// awaitVersion returns the error for a read of that version.
func (c *watchCache) awaitVersion(ctx context.Context, version string) error {
	if version == "" || version == "0" {
		return nil
	}
	read := storage.GetOptions{IgnoreNotFound: true, ResourceVersion: version}
	return c.ahead.explain(ctx, version, c.current.Load().Get(ctx, c.probe, read, &metav1.PartialObjectMetadata{}))
}

// ready returns an error while the cacher has no state or is getting a new one, and nil otherwise.
func (c *watchCache) ready() error {
	if !c.current.Load().Ready() {
		return errors.New("the watch cache waits for the state")
	}
	return nil
}

// keyFunc returns a function that returns the key of an object, the same key as in registry.Store.
func keyFunc(r *Resource) func(runtime.Object) (string, error) {
	return func(obj runtime.Object) (string, error) {
		object, err := meta.Accessor(obj)
		if err != nil {
			return "", err
		}
		if r.Namespaced {
			return r.prefix() + "/" + object.GetNamespace() + "/" + object.GetName(), nil
		}
		return r.prefix() + "/" + object.GetName(), nil
	}
}
