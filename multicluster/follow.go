// Package multicluster connects an informer over clusters with a provider of sigs.k8s.io/multicluster-runtime. [Follow] makes a
// [Follower], which implements the interface multicluster.Aware: the provider engages its clusters in it. The package itself does
// not import multicluster-runtime, so that a program may use any version with the same interface Aware.
package multicluster

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/controllerruntime"
	"github.com/customcacheinformer/informer/internal/object"
)

// Source makes the source of a cluster. [Follower.Engage] calls it with its own arguments, perhaps from several goroutines at once, and
// wraps its error. The provider waits for Engage, so a Source should not make a request that may take long.
type Source func(ctx context.Context, name string, cl cluster.Cluster) (informer.ClusterSource, error)

// ListWatch returns a Source for the type of list, see [controllerruntime.ListWatch]. Neither ListWatch nor the Source makes a
// request. The Source uses the configuration, HTTP client, scheme and RESTMapper of a cluster, but neither its client nor its
// cache. If the client or the cache shows only a part of the cluster, such as one namespace, pass the same limit in opts.
// ClusterSource.UID is empty, because reading it would take a request. A Source of your own can set it, see [Follower.Engage].
func ListWatch[L client.ObjectList](list L, opts ...client.ListOption) Source {
	return func(_ context.Context, _ string, cl cluster.Cluster) (informer.ClusterSource, error) {
		c, err := client.NewWithWatch(cl.GetConfig(), client.Options{
			HTTPClient: cl.GetHTTPClient(), Scheme: cl.GetScheme(), Mapper: cl.GetRESTMapper(),
		})
		return informer.ClusterSource{Source: controllerruntime.ListWatch(c, list, opts...)}, err // ListWatch takes nil
	}
}

// Follower engages the clusters of a provider in an informer. [Follow] makes one. Run [Follower.Start] with the provider: otherwise
// the end of the program counts as the end of each cluster, and all clusters leave. The methods of a Follower may be called from any
// goroutine. It must not be copied.
type Follower[T informer.Object] struct {
	set      *informer.Clusters[T]
	source   Source
	leave    informer.Leave
	mu       sync.Mutex             // never held while a Source is called
	ctx      context.Context        // of Start; nil before
	engaged  map[string]*engagement // the last Engage of each name
	watching sync.WaitGroup         // counts each engagement until left has returned, or will not be called
}

type engagement struct {
	cl   cluster.Cluster
	stop func() bool // see context.AfterFunc
}

// Follow returns a Follower that engages clusters in set. leave decides whether the objects of a cluster that leaves come as deletes,
// see [informer.Leave]. Follow does not block. It returns an error if set or source is nil, or if leave is not one of the constants.
func Follow[T informer.Object](set *informer.Clusters[T], source Source, leave informer.Leave) (*Follower[T], error) {
	if set == nil || source == nil || leave != informer.LeaveDeleted && leave != informer.LeaveSilently {
		return nil, errors.New("multicluster: Follow: the informer or the source is nil, or leave is not a constant")
	}
	return &Follower[T]{set: set, source: source, leave: leave, engaged: map[string]*engagement{}}, nil
}

// Start blocks until ctx is done and the goroutines of the Follower have returned. Then it returns nil. It does not run the
// informer. A second call returns at once an error that wraps [informer.ErrAlreadyRun].
//
// ctx must be the ctx of the provider's Start, or a parent of it. The end of ctx is the end of the program, not of the clusters:
// they stay engaged, and no deletes are delivered. A manager of multicluster-runtime passes the same ctx to both. If the provider
// is added to a manager as a Runnable that needs no leader election, its ctx ends first, and all clusters leave the informer.
func (f *Follower[T]) Start(ctx context.Context) error {
	f.mu.Lock()
	if f.ctx != nil {
		f.mu.Unlock()
		return fmt.Errorf("multicluster: Start: %w", informer.ErrAlreadyRun)
	}
	f.ctx = ctx
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	for _, e := range f.engaged {
		if e.stop() {
			f.watching.Done()
		}
	}
	f.mu.Unlock()
	f.watching.Wait()
	return nil
}

// Engage makes the informer read a cluster until ctx ends. A provider may call it at any time. Calls for one name must come one
// after the other. Engage blocks only while the Source does.
//
// Only the last Engage of a name counts, with its ctx. If cl is the same value as in the last call, only the ctx changes, unless the
// program has disengaged the cluster. If cl is another value, or one that cannot be compared, and the earlier ctx has not ended,
// Engage passes its source to [informer.Clusters.Replace]. With the same UID, nothing leaves and nothing is listed. With another UID
// or none, the old objects come as deletes, even with [informer.LeaveSilently]. If the earlier ctx is done, the cluster may leave before
// it comes again.
//
// Engage returns an error if cl is nil, if ctx is done, if the Source fails, or if [informer.Clusters.Engage] or Replace does.
// Then nothing changes. If ctx is done, the error wraps its cause. Otherwise it wraps [informer.ErrStopped] once the ctx of Start
// or of the informer's Run is done.
func (f *Follower[T]) Engage(ctx context.Context, name string, cl cluster.Cluster) error {
	from, err := informer.ClusterSource{}, errors.New("the cluster is nil")
	if !object.IsNil(cl) {
		from, err = f.source(ctx, name, cl)
	}
	if err == nil {
		err = f.engage(ctx, name, cl, from)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return fmt.Errorf("multicluster: Engage of cluster %q: %w", name, err)
	}
	return nil
}

func (f *Follower[T]) engage(ctx context.Context, name string, cl cluster.Cluster, from informer.ClusterSource) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, err := f.engaged[name], informer.ErrNotEngaged
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case f.over():
		return informer.ErrStopped
	case last != nil && same(last.cl, cl):
		err = f.set.Engage(name, from) // which fails if the cluster is still engaged
		if !errors.Is(err, informer.ErrStopped) && slices.Contains(f.set.Engaged(), name) {
			err = nil
		}
	case last != nil:
		err = f.set.Replace(name, from)
	}
	if errors.Is(err, informer.ErrNotEngaged) { // also if the program has disengaged it
		err = f.set.Engage(name, from)
	}
	if err != nil {
		return err
	}
	if last != nil && last.stop() {
		f.watching.Done()
	}
	e := &engagement{cl: cl}
	f.engaged[name] = e
	f.watching.Add(1)
	e.stop = context.AfterFunc(ctx, func() { f.left(name, e) })
	return nil
}

// same reports whether two clusters are the same value. Values that cannot be compared are different.
func same(a, b cluster.Cluster) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// left disengages a cluster whose ctx is done, unless the name has a later engagement or the program ends.
func (f *Follower[T]) left(name string, e *engagement) {
	defer f.watching.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.engaged[name] == e && !f.over() {
		delete(f.engaged, name)
		_, _ = f.set.Disengage(name, f.leave) // an error means that the name is not engaged or the informer has stopped
	}
}

func (f *Follower[T]) over() bool { return f.ctx != nil && f.ctx.Err() != nil }
