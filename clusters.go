package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/framing"
	"github.com/customcacheinformer/informer/internal/memory"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/source"
)

// Clusters is an informer over one resource in many clusters, which come and go while it runs. [NewOverClusters] makes one.
// Its methods may be called from any goroutine and in any order. It must not be copied.
//
// It is the [CustomCacheInformer] inside it, with one store and one registration for each watcher. A cluster that cannot be
// read delays no other and keeps its last state. So does one that has more changes than the store can take, as with
// [NewInNamespaces]. [Event.Cluster] is the name of the cluster of an event, and [Clusters.In] reads one cluster. List,
// ByIndex and All read all clusters. Get, WaitFor, WaitForVersion and ServerVersion return an error, because a namespace
// and a name may stand for an object in each cluster, and each cluster has versions of its own.
type Clusters[T Object] struct {
	*CustomCacheInformer[T]
	engaged sync.Map // name to *scope; changed with roster.mu held
}

// ClusterOptions are the options of [NewOverClusters] that concern the clusters. The zero value is ready to use.
type ClusterOptions struct {
	// SyncWait is how long the informer waits for the first lists of all clusters. Then it counts as synced as soon as one
	// of them is complete. 0 means 30 s, and a negative value no limit. See [Clusters.WaitForSyncIn] for a certain cluster.
	SyncWait time.Duration
}

// ClusterSource is the source of the objects of a cluster.
type ClusterSource struct {
	// Source lists and watches the resource in the cluster, such as the result of [ListWatch].
	Source cache.ListerWatcher
	// UID is the same for two sources if they read the same cluster, such as the UID of the namespace kube-system. It is ""
	// if it is not known. Only [Clusters.Replace] needs it.
	UID types.UID
}

// Leave says how the objects of a cluster leave, see [Clusters.Disengage].
type Leave uint8

const (
	// LeaveDeleted delivers a delete of each object, with OriginLeft and FinalStateUnknown.
	LeaveDeleted Leave = iota + 1
	// LeaveSilently delivers nothing, for a cluster that is out of reach and has not lost its objects. The events of these
	// objects that wait for a watcher are dropped, also those that wait for a retry. Deletes that have arrived before still come.
	LeaveSilently
)

// defaultSyncWait is the default of ClusterOptions.SyncWait.
const defaultSyncWait = 30 * time.Second

// maxClusterName is the length of the longest name of a cluster, in bytes.
const maxClusterName = 253

// NewOverClusters returns an informer over one resource in many clusters. It reads none until [Clusters.Engage] names one.
//
// It has synced when it has listed all of them that are engaged, or after ClusterOptions.SyncWait one of them. So a cluster
// that is out of reach does not keep a program from becoming ready. If none is engaged when it starts to run, it has synced at
// once, and does not wait for those that come later.
//
// NewOverClusters returns an error in the cases in which [NewFrom] does, and if Options.Store or Options.Durable is set.
func NewOverClusters[T Object](opts Options[T], clusters ClusterOptions) (*Clusters[T], error) {
	if opts.Store != nil || opts.Durable != nil {
		return nil, errors.New("informer: Options.Store or Options.Durable is set, but only the informer's own store keeps the objects of several clusters")
	}
	i, err := newFrom(reading{clusters: true}, opts)
	if err != nil {
		return nil, err
	}
	i.syncWait = clusters.SyncWait
	if i.syncWait == 0 {
		i.syncWait = defaultSyncWait
	}
	return &Clusters[T]{CustomCacheInformer: i}, nil
}

// Engage reads a cluster from now on. It makes no request itself and does not block. It may be called at any time, also before
// Run and in a watcher's callback. The first objects come with OriginInitial, also after the informer has synced. A cluster
// that cannot be read is tried again and again, until it leaves: Health and Options.ErrorHandler have the reason.
//
// Engage returns an error if the name is engaged, empty or longer than 253 bytes, if it has a space, a character that
// cannot be printed or "|", or if the source cannot be used. It returns ErrStopped once Run's ctx has ended. If the cluster has
// just left, it is listed when that has been delivered.
func (c *Clusters[T]) Engage(name string, from ClusterSource) error {
	s, err := c.scopeFor(name, from)
	if err != nil {
		return c.failed("Engage", name, err)
	}
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	if _, taken := c.scope(name); taken {
		err = errors.New("the cluster is engaged already")
	} else {
		err = c.become(name, nil, s)
	}
	return c.failed("Engage", name, err)
}

// Disengage stops reading a cluster. It does not wait for requests, and may be called at any time, also in a watcher's callback.
// The events of the cluster that have arrived are delivered as usual, or dropped by LeaveSilently. left is closed when the store has none
// of its objects. A watcher that is behind gets their deletes later, see [Registration.CatchUp]. left stays open if Run's ctx ends before.
//
// Disengage returns an error if leave is none of the constants, and one that wraps [ErrNotEngaged] if the cluster is not engaged.
func (c *Clusters[T]) Disengage(name string, leave Leave) (left <-chan struct{}, err error) {
	if leave != LeaveDeleted && leave != LeaveSilently {
		return nil, c.failed("Disengage", name, fmt.Errorf("leave is %d, neither LeaveDeleted nor LeaveSilently", leave))
	}
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	s, ok := c.scope(name)
	if !ok {
		return nil, c.failed("Disengage", name, ErrNotEngaged)
	}
	s.silent = leave == LeaveSilently
	return s.left, c.failed("Disengage", name, c.become(name, s, nil))
}

// Replace reads an engaged cluster from another source, such as one with new credentials. It does not block.
//
// If both sources have the same UID, which is not "", and are of the same type, such as two that [ListWatch] has made of clients of one
// type, the informer continues at the version that it has reached: no event is missed, and nothing is listed unless a list
// was under way. Otherwise the objects of the old cluster leave, as deletes with OriginLeft, and those of
// the new one are listed.
//
// Replace returns an error that wraps [ErrNotEngaged] if the cluster is not engaged, and an error if the source cannot be used.
// Then the informer goes on with the old one. It returns ErrStopped once Run's ctx has ended.
func (c *Clusters[T]) Replace(name string, from ClusterSource) error {
	s, err := c.scopeFor(name, from)
	if err != nil {
		return c.failed("Replace", name, err)
	}
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	old, ok := c.scope(name)
	switch {
	case channel.Closed(c.stopped):
		err = ErrStopped
	case !ok:
		err = ErrNotEngaged
	case from.UID != "" && from.UID == old.uid && framed(from.Source) == old.framing:
		old.wire.Set(from.Source)
	default:
		err = c.become(name, old, s)
	}
	return c.failed("Replace", name, err)
}

// scopeFor returns the scope of a cluster that is to be engaged.
func (c *Clusters[T]) scopeFor(name string, from ClusterSource) (*scope, error) {
	if err := checkClusterName(name); err != nil {
		return nil, err
	}
	if err := checkSource(from.Source); err != nil {
		return nil, err
	}
	if _, ok := from.Source.(source.Divided); ok {
		return nil, errors.New("a divided source cannot be one of several")
	}
	s := c.newScope(resource{region: region{cluster: &Cluster{name}}, lw: from.Source})
	s.wire, s.uid, s.framing = source.NewWire(from.Source), from.UID, framed(from.Source)
	return s, nil
}

// become replaces the source of a cluster, which either side may lack. The caller holds roster.mu.
func (c *Clusters[T]) become(name string, gone, come *scope) error {
	set := slices.Clone(c.gate.scopes())
	var comes, leaves []*scope
	if gone != nil {
		set = slices.DeleteFunc(set, func(s *scope) bool { return s == gone })
		leaves = append(leaves, gone)
	}
	if come != nil {
		set = append(set, come)
		comes = append(comes, come)
	}
	if come == nil { // before the first of its objects leaves
		c.engaged.Delete(name)
	}
	switch err := c.CustomCacheInformer.become(set, comes, leaves); {
	case err != nil:
		if gone != nil {
			c.engaged.Store(name, gone)
		}
		return err
	case come != nil:
		c.engaged.Store(name, come)
	}
	return nil
}

func (c *Clusters[T]) scope(name string) (*scope, bool) {
	s, ok := c.engaged.Load(name)
	if !ok {
		return nil, false
	}
	return s.(*scope), true
}

func (c *Clusters[T]) failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("informer %s: %s of cluster %q: %w", c.opts.Name, op, name, err)
}

func checkClusterName(name string) error {
	odd := func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsPrint(r) || r == ' ' || string(r) == object.ClusterMark
	}
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > maxClusterName:
		return fmt.Errorf("the name is longer than %d bytes", maxClusterName)
	case strings.ContainsFunc(name, odd):
		return fmt.Errorf("the name has a space, a character that cannot be printed, or %q", object.ClusterMark)
	}
	return nil
}

// Engaged returns the names of the clusters that are engaged, in the order in which they were. It does not block.
func (c *Clusters[T]) Engaged() []string {
	var names []string
	for _, s := range c.gate.scopes() {
		names = append(names, s.name())
	}
	return names
}

// WaitForSyncIn blocks until the first list of a cluster is in the store. It returns nil at once if it is, a *SyncError if ctx or the
// informer ends first, and an error that wraps [ErrNotEngaged] if the cluster is not engaged or leaves. It may be called before Run, but
// not in a watcher's callback.
func (c *Clusters[T]) WaitForSyncIn(ctx context.Context, cluster string) error {
	s, ok := c.scope(cluster)
	if !ok {
		return c.failed("WaitForSyncIn", cluster, ErrNotEngaged)
	}
	for {
		_, moved := c.gate.resourceVersion(s)
		switch {
		case s.listed.Load():
			return nil
		case s.gone.Load():
			return c.failed("WaitForSyncIn", cluster, ErrNotEngaged)
		}
		if err := c.wait(ctx, s.synced, moved); err != nil {
			return c.syncErrorIn(cluster, err, []string{"the first list of " + cluster})
		}
	}
}

// WaitForVersionIn blocks until the store has every change of a cluster up to version, see [CustomCacheInformer.WaitForVersion]. It
// returns an error that wraps [ErrNotEngaged] if the cluster is not engaged or leaves.
func (c *Clusters[T]) WaitForVersionIn(ctx context.Context, cluster, version string) error {
	s, ok := c.scope(cluster)
	if !ok {
		return c.failed("WaitForVersionIn", cluster, ErrNotEngaged)
	}
	return c.waitForVersion(ctx, s, version)
}

// In returns what the informer knows of one cluster. It does not block, and may be kept: its methods see the cluster at the time of
// their call. While the cluster is not engaged, Get, List and ByIndex return an error that wraps [ErrNotEngaged], and All yields
// nothing. Before the first list of the cluster is in the store, it may seem to have fewer objects than it has, or after
// [Clusters.Replace] those of the cluster before: see WaitForSyncIn.
func (c *Clusters[T]) In(cluster string) Reader[T] { return clusterReader[T]{c, cluster} }

type clusterReader[T Object] struct {
	of      *Clusters[T]
	cluster string
}

// in returns the cluster in a state that take returns, and an error unless it is engaged before and after that.
func (r clusterReader[T]) in(take func() *memory.Snapshot) (*Snapshot[T], error) {
	before, engaged := r.of.scope(r.cluster)
	s := r.of.shown(take()).In(r.cluster)
	if after, _ := r.of.scope(r.cluster); !engaged || after != before {
		return nil, fmt.Errorf("informer %s: cluster %q: %w", r.of.opts.Name, r.cluster, ErrNotEngaged)
	}
	return s, nil
}

func (r clusterReader[T]) Get(key types.NamespacedName) (obj T, exists bool, err error) {
	s, err := r.in(r.of.own.Now)
	if err != nil {
		return obj, false, err
	}
	return s.Get(key)
}

func (r clusterReader[T]) List(namespace string, sel labels.Selector) ([]T, error) {
	s, err := r.in(r.of.own.Snapshot)
	if err != nil {
		return nil, err
	}
	return s.List(namespace, sel)
}

func (r clusterReader[T]) ByIndex(name, value string) ([]T, error) {
	s, err := r.in(r.of.own.Now)
	if err != nil {
		return nil, err
	}
	return s.ByIndex(name, value)
}

func (r clusterReader[T]) All() iter.Seq2[types.NamespacedName, T] {
	return func(yield func(types.NamespacedName, T) bool) {
		if s, err := r.in(r.of.own.Snapshot); err == nil {
			s.All()(yield)
		}
	}
}

// framed returns the type of the objects that a source delivers as they come from the server.
func framed(lw cache.ListerWatcher) framing.Type {
	if l, ok := lw.(*clientListWatch); ok {
		return l.framing
	}
	return framing.Type{}
}
