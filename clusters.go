package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/channel"
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
	unasked func(name string) Leave // how a cluster leaves that only the Durable knows, 0 if it stays; protected by roster.mu
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
	// if it is not known. [Clusters.Replace] needs it, and so does a start over Options.Durable: without it, each start lists.
	UID types.UID
	// TweakListOptions changes the options of each list and each watch of this cluster, after Options.TweakListOptions. It
	// must not block. Defaults to no change.
	TweakListOptions func(*metav1.ListOptions)
}

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
// Over Options.Durable, the clusters of which the store has objects are engaged when Run has read it, without a source. They keep their last
// state until Engage names their source, which continues at the version that was reached if its UID is the same and is compared with a list otherwise,
// or until they leave: see [Clusters.DisengageStored].
//
// NewOverClusters returns an error in the cases in which [NewFrom] does, and if Options.Store is set.
func NewOverClusters[T Object](opts Options[T], clusters ClusterOptions) (*Clusters[T], error) {
	if opts.Store != nil {
		return nil, errors.New("informer: Options.Store is set, but only the informer's own store or a Durable keeps the objects of several clusters")
	}
	i, err := newFrom(reading{clusters: true}, opts)
	if err != nil {
		return nil, err
	}
	i.syncWait = clusters.SyncWait
	if i.syncWait == 0 {
		i.syncWait = defaultSyncWait
	}
	c := &Clusters[T]{CustomCacheInformer: i, unasked: func(string) Leave { return 0 }}
	if d, ok := i.applier.storage.(*durableStore[T]); ok {
		i.roster.unread, d.recalled = true, c.recall
	}
	return c, nil
}

// recall engages the clusters of which the store has objects, without a source, before their sources may run. Those that had begun
// to leave continue with that.
func (c *Clusters[T]) recall(marks map[string]mark) {
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	c.roster.unread = false
	set := slices.Clone(c.gate.scopes())
	var leaving []*scope
	for _, name := range slices.Sorted(maps.Keys(marks)) {
		m := marks[name]
		if s, engaged := c.scope(name); engaged {
			s.lists = s.lists || s.uid == "" || s.uid != m.UID
			continue
		}
		if last := c.roster.last[name]; last != nil && !channel.Closed(last.left) {
			continue // it has been engaged and disengaged while the store was read
		}
		s := c.newScope(resource{region: region{cluster: &Cluster{name}}})
		s.uid = m.UID
		takeInEarly([]*scope{s}, c.opts)
		set = append(set, s)
		c.roster.engaged.Store(name, s)
		if leave := cmp.Or(m.Leaves, c.unasked(name)); leave != 0 {
			s.leave = leave
			leaving = append(leaving, s)
		}
	}
	c.gate.become(set, nil, true)
	for _, s := range leaving {
		_ = c.become(s.name(), s, nil) // an error means that the informer has stopped
	}
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
	if old, taken := c.scope(name); taken && !old.loose() && !channel.Closed(c.stopped) {
		err = errors.New("the cluster is engaged already")
	} else {
		err = c.read(name, old, s)
	}
	return c.failed("Engage", name, err)
}

// Disengage stops reading a cluster. It does not wait for requests, and may be called at any time, also in a watcher's callback.
// The events of the cluster that have arrived are delivered as usual, or dropped by LeaveSilently. left is closed when the store has none
// of its objects. A watcher that is behind gets their deletes later, see [Registration.CatchUp]. left stays open if Run's ctx ends before.
// Before Run, left is closed at once: if Options.Durable has objects of the cluster, Run engages it as one that only the store knows.
//
// Disengage returns an error if leave is none of the constants, and one that wraps [ErrNotEngaged] if the cluster is not engaged.
func (c *Clusters[T]) Disengage(name string, leave Leave) (left <-chan struct{}, err error) {
	if err := leave.check(); err != nil {
		return nil, c.failed("Disengage", name, err)
	}
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	s, ok := c.scope(name)
	if !ok {
		return nil, c.failed("Disengage", name, ErrNotEngaged)
	}
	s.leave = leave
	return s.left, c.failed("Disengage", name, c.become(name, s, nil))
}

// DisengageStored disengages the clusters that only Options.Durable knows, because nothing has engaged them since the start. Call it when
// all clusters are engaged that are wanted. except has the names of clusters that stay nevertheless, such as those whose configuration
// cannot be read. If the informer has not read its Durable yet, they leave as soon as it has. DisengageStored does not block, and may be called at
// any time. It returns an error if leave is none of the constants, and ErrStopped once Run's ctx has ended.
func (c *Clusters[T]) DisengageStored(leave Leave, except ...string) error {
	if err := leave.check(); err != nil {
		return fmt.Errorf("informer %s: DisengageStored: %w", c.opts.Name, err)
	}
	stays := map[string]bool{}
	for _, name := range except {
		stays[name] = true
	}
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	if channel.Closed(c.stopped) {
		return fmt.Errorf("informer %s: DisengageStored: %w", c.opts.Name, ErrStopped)
	}
	c.unasked = func(name string) Leave {
		if stays[name] {
			return 0
		}
		return leave
	}
	for _, s := range c.gate.scopes() {
		if !s.loose() || stays[s.name()] {
			continue
		}
		s.leave = leave
		if err := c.become(s.name(), s, nil); err != nil {
			return fmt.Errorf("informer %s: DisengageStored: %w", c.opts.Name, err)
		}
	}
	return nil
}

// Replace reads an engaged cluster from another source, such as one with new credentials. It does not block.
//
// If both sources have the same UID, which is not "", the informer continues at the version that it has reached: no event is missed,
// and nothing is listed unless a list was under way. Otherwise the objects of the old cluster leave, as deletes with OriginLeft, and those of
// the new one are listed.
//
// Replace returns an error that wraps [ErrNotEngaged] if the cluster is not engaged, and an error if the source cannot be used.
// Then the informer continues with the old one. It returns ErrStopped once Run's ctx has ended.
func (c *Clusters[T]) Replace(name string, from ClusterSource) error {
	s, err := c.scopeFor(name, from)
	if err != nil {
		return c.failed("Replace", name, err)
	}
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	if old, ok := c.scope(name); ok || channel.Closed(c.stopped) {
		err = c.read(name, old, s)
	} else {
		err = ErrNotEngaged
	}
	return c.failed("Replace", name, err)
}

// Move reads an engaged cluster from a source that delivers the same objects in another form, such as another version of their API,
// in which the resourceVersions are the same. It does not block. The source is listed, and the contents of the objects are compared: one
// that differs comes as an update with OriginRelist, one that is equal causes no event, and one that the list lacks is deleted. Until the list
// is complete, the store has the objects in the form in which they came last.
//
// The cluster keeps the UID with which it was engaged, so from.UID does not count. Over Options.Durable, that UID should differ from one start
// to the next if the form may: then each start lists. Move returns an error in the cases in which Replace does.
func (c *Clusters[T]) Move(name string, from ClusterSource) error {
	s, err := c.scopeFor(name, from)
	if err != nil {
		return c.failed("Move", name, err)
	}
	c.roster.mu.Lock()
	defer c.roster.mu.Unlock()
	old, ok := c.scope(name)
	switch {
	case channel.Closed(c.stopped):
		err = ErrStopped
	case !ok:
		err = ErrNotEngaged
	default:
		old.wire.Move(s.wire)
	}
	return c.failed("Move", name, err)
}

// read reads a cluster as s from now on. If old reads the same cluster, it continues with the source of s. The caller holds roster.mu.
func (c *Clusters[T]) read(name string, old, s *scope) error {
	switch {
	case channel.Closed(c.stopped):
		return ErrStopped
	case old != nil && old.uid != "" && old.uid == s.uid:
		old.wire.Set(s.wire)
		return nil
	case old != nil && old.loose():
		old.passes = true // the first list of s is compared with the objects of old
	}
	return c.become(name, old, s)
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
	tweak := func(opts *metav1.ListOptions) {
		for _, change := range []func(*metav1.ListOptions){c.opts.TweakListOptions, from.TweakListOptions} {
			if change != nil {
				change(opts)
			}
		}
	}
	s := c.newScope(resource{region: region{cluster: &Cluster{name}}, lw: from.Source, tweak: tweak})
	s.uid = from.UID
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
		c.roster.engaged.Delete(name)
	} else { // before the first of its objects comes
		c.roster.engaged.Store(name, come)
	}
	err := c.CustomCacheInformer.become(set, comes, leaves)
	switch {
	case err != nil && gone != nil:
		c.roster.engaged.Store(name, gone)
	case err != nil:
		c.roster.engaged.CompareAndDelete(name, come)
	}
	return err
}

func (c *Clusters[T]) scope(name string) (*scope, bool) { return c.roster.scope(name) }

// scope returns a cluster that is engaged.
func (r *roster) scope(name string) (*scope, bool) {
	s, ok := r.engaged.Load(name)
	if !ok {
		return nil, false
	}
	return s.(*scope), true
}

func (i *CustomCacheInformer[T]) failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("informer %s: %s of cluster %q: %w", i.opts.Name, op, name, err)
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

// SyncedIn reports whether the first list of a cluster is in the store, so that an object which Get of [Clusters.In] does not
// find does not exist there. It does not block. For a cluster that is not engaged, it returns false.
func (c *Clusters[T]) SyncedIn(cluster string) bool {
	s, ok := c.scope(cluster)
	return ok && s.listed.Load()
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
			if s, ok = c.scope(cluster); !ok {
				return c.failed("WaitForSyncIn", cluster, ErrNotEngaged)
			}
			continue
		}
		if err := c.wait(ctx, s.synced, moved); err != nil {
			return c.syncErrorIn(cluster, err, []string{"the first list of " + cluster})
		}
	}
}

// WaitForVersionIn is [CustomCacheInformer.WaitForVersion] for a cluster of an informer that [NewOverClusters] has made. It
// returns an error that wraps [ErrNotEngaged] if the cluster is not engaged or leaves.
func (i *CustomCacheInformer[T]) WaitForVersionIn(ctx context.Context, cluster, version string) error {
	s, ok := i.roster.scope(cluster)
	if !ok {
		return i.failed("WaitForVersionIn", cluster, ErrNotEngaged)
	}
	return i.waitForVersion(ctx, s, version)
}

// ServerVersionIn is [CustomCacheInformer.ServerVersion] for a cluster of an informer that [NewOverClusters] has made. It
// returns an error that wraps [ErrNotEngaged] if the cluster is not engaged.
func (i *CustomCacheInformer[T]) ServerVersionIn(ctx context.Context, cluster string) (string, error) {
	s, ok := i.roster.scope(cluster)
	if !ok {
		return "", i.failed("ServerVersionIn", cluster, ErrNotEngaged)
	}
	version, err := s.Newest(ctx)
	return version, i.failed("ServerVersionIn", cluster, err)
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

// engaged calls read, and returns an error unless the cluster is engaged before and after that.
func (r clusterReader[T]) engaged(read func() error) error {
	before, engaged := r.of.scope(r.cluster)
	err := read()
	if after, _ := r.of.scope(r.cluster); !engaged || after != before && (after == nil || !before.passes) {
		return fmt.Errorf("informer %s: cluster %q: %w", r.of.opts.Name, r.cluster, ErrNotEngaged)
	}
	return err
}

// in returns the cluster in a state that take returns.
func (r clusterReader[T]) in(take func() *memory.Snapshot) (s *Snapshot[T], err error) {
	err = r.engaged(func() error { s = r.of.shown(take()).In(r.cluster); return nil })
	return s, err
}

func (r clusterReader[T]) Get(key types.NamespacedName) (obj T, exists bool, err error) {
	if r.of.own == nil {
		err = r.engaged(func() (err error) { obj, exists, err = r.of.get(object.KeyIn(r.cluster, key)); return err })
		return obj, exists, err
	}
	s, err := r.in(r.of.own.Now)
	if err != nil {
		return obj, false, err
	}
	return s.Get(key)
}

func (r clusterReader[T]) List(namespace string, sel labels.Selector) (objs []T, err error) {
	if r.of.own == nil {
		prefix := r.cluster + object.ClusterMark
		if namespace != "" {
			prefix += namespace + "/"
		}
		err = r.engaged(func() (err error) { objs, err = r.of.under(prefix, sel); return err })
		return objs, err
	}
	s, err := r.in(r.of.own.Snapshot)
	if err != nil {
		return nil, err
	}
	return s.List(namespace, sel)
}

func (r clusterReader[T]) ByIndex(name, value string) (objs []T, err error) {
	if r.of.own == nil {
		err = r.engaged(func() (err error) {
			objs, err = r.of.index.FindUnder(r.cluster+object.ClusterMark, name, value)
			return err
		})
		return objs, err
	}
	s, err := r.in(r.of.own.Now)
	if err != nil {
		return nil, err
	}
	return s.ByIndex(name, value)
}

func (r clusterReader[T]) All() iter.Seq2[types.NamespacedName, T] {
	return func(yield func(types.NamespacedName, T) bool) {
		if r.of.own == nil {
			if _, engaged := r.of.scope(r.cluster); engaged {
				r.of.yield(r.cluster+object.ClusterMark, yield)
			}
			return
		}
		if s, err := r.in(r.of.own.Snapshot); err == nil {
			s.All()(yield)
		}
	}
}
