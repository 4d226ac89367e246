package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/source"
)

// Clusters is an informer over one resource in many clusters. Clusters may be added and removed while it runs. [NewOverClusters]
// makes one. Its methods may be called from any goroutine and in any order. A Clusters must not be copied.
//
// A Clusters embeds a [CustomCacheInformer], with one store and one registration for each watcher. A cluster that cannot be read keeps its
// last state and delays no other. A cluster that has more changes than the store can take delays no other either, as with
// [NewInNamespaces]. [Event.Cluster] returns the cluster of an event, and [Clusters.In] reads one cluster. List, ByIndex and All read
// all clusters. Get, WaitFor, WaitForVersion and ServerVersion return an error, because each cluster may have an object of the same
// namespace and name, and has its own versions.
type Clusters[T Object] struct {
	*CustomCacheInformer[T]
	unasked func(name string) Leave // how a cluster leaves that only the Durable knows, 0 if it stays; protected by roster.mu
}

// ClusterOptions are the options of [NewOverClusters] that concern the clusters. The zero value is ready to use.
type ClusterOptions struct {
	// SyncWait is how long the informer waits for the first lists of all engaged clusters. The wait begins with Run, or when Run has
	// read Options.Durable. After it, one complete list is enough to sync. 0 means 30 s, and a negative value means no limit. To wait
	// for one cluster, use [Clusters.WaitForSyncIn].
	SyncWait time.Duration
}

// ClusterSource describes how an informer reads one cluster.
type ClusterSource struct {
	// Source lists and watches the resource in the cluster, such as the result of [ListWatch].
	Source cache.ListerWatcher
	// UID identifies the cluster: give two sources the same UID only if they read the same cluster. Use, for example, the UID of the
	// namespace kube-system. If UID is "", [Clusters.Replace] always delivers deletes and then lists, and each start over Options.Durable lists.
	UID types.UID
	// TweakListOptions changes the options of each list and each watch of this cluster. It is called after Options.TweakListOptions
	// and must not block. Several goroutines may call it at once. Defaults to none.
	TweakListOptions func(*metav1.ListOptions)
}

// defaultSyncWait is the default of ClusterOptions.SyncWait.
const defaultSyncWait = 30 * time.Second

// maxClusterName is the maximum length of the name of a cluster, in bytes.
const maxClusterName = 253

// NewOverClusters returns an informer over one resource in many clusters. It reads no cluster until [Clusters.Engage] adds one.
//
// The informer has synced when it has listed all engaged clusters, or, once ClusterOptions.SyncWait has passed, at least one of them.
// So a program becomes ready even if a cluster is out of reach. If no cluster is engaged when Run begins, the informer syncs at once.
//
// Over Options.Durable, Run reads the store and engages the clusters that have objects in it, without a source. They keep their last
// state until Engage gives them a source or [Clusters.DisengageStored] removes them. If Engage gives a source with the same UID, the
// informer continues at the version that it had reached. Otherwise it lists, and compares the list with the stored objects.
//
// NewOverClusters returns an error if Options.Store is set, or if another option cannot be used, as [NewFrom] does.
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

// recall engages the stored clusters, without a source, before any source may run. Those that had begun to leave continue to leave.
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

// Engage adds a cluster, which the informer reads from then on. Engage makes no request and does not block. It may be called at any
// time, also in a watcher's callback. The cluster's first objects come with OriginInitial, even if the informer has synced. If the
// cluster cannot be read, the informer keeps trying until the cluster is disengaged. Health and Options.ErrorHandler get the reason.
//
// Engage returns an error if a cluster of that name already has a source, or if the name or the source cannot be used. A name has 1 to
// 253 bytes, without spaces, "|" and characters that cannot be printed. Once Run's ctx is done, Engage returns an error that wraps
// [ErrStopped]. If a cluster of that name was just disengaged, the new one is listed when the old objects have left the store.
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

// Disengage removes a cluster, which the informer no longer reads. leave chooses what watchers get for its objects. Disengage does not
// block, and may be called at any time, also in a watcher's callback. Events that have arrived are delivered as usual, unless leave is
// [LeaveSilently], which drops them. left is closed when the store no longer has any object of the cluster. A watcher that is behind
// gets the deletes later, see [Registration.CatchUp]. If Run's ctx ends first, left stays open. Before Run, left is closed at once, even
// if Options.Durable has objects of the cluster: Run then engages the cluster without a source, see DisengageStored.
//
// Disengage returns an error if leave is not one of the constants. The error wraps [ErrNotEngaged] if the cluster is not engaged,
// and [ErrStopped] once Run's ctx is done.
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

// DisengageStored disengages the clusters that have objects in Options.Durable but have not been engaged since the start. Call it when
// you have engaged all clusters that you want. The clusters in except stay: name the clusters whose configuration cannot be read now.
// If Run has not read the Durable yet, the clusters leave when Run has read it. DisengageStored does not block, and may be called at
// any time. It returns an error if leave is not one of the constants, and one that wraps [ErrStopped] once Run's ctx is done.
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

// Replace makes the informer read an engaged cluster from another source, such as one with new credentials. Replace does not block.
//
// If both sources have the same UID, and it is not "", the informer continues at the version that it has reached. No event is missed,
// and nothing is listed unless a list was under way. Otherwise the objects of the old cluster come as deletes with OriginLeft, and
// then the new cluster is listed. For a cluster known only from Options.Durable, its first list is compared with the stored objects.
//
// Replace returns an error if the source cannot be used. The error wraps [ErrNotEngaged] if the cluster is not engaged, and
// [ErrStopped] once Run's ctx is done. After an error, the informer continues with the old source.
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

// Move makes the informer read an engaged cluster from a source with the same objects in another form, such as another version of
// their API. The resourceVersions must be the same in both forms. Move does not block. The informer lists the new source and compares
// the contents of the objects. An object that differs comes as an update with OriginRelist, an equal one causes no event, and one
// that the list lacks is deleted. Until the list is complete, the store has some objects in the old form.
//
// Move ignores from.UID: the cluster keeps the UID with which it was engaged. If Options.Durable may hold the form of an earlier
// start, engage the cluster with a different UID at each start, so that each start lists. Move returns the same errors as Replace.
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

// read makes s the scope of a cluster. If old has the same UID, not "", old stays with the source of s. The caller holds roster.mu.
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

// scopeFor returns a new scope for a cluster, or an error if the name or the source cannot be used.
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

// become replaces the scope gone of a cluster by come. Either may be nil. The caller holds roster.mu.
func (c *Clusters[T]) become(name string, gone, come *scope) error {
	set := slices.Clone(c.gate.scopes())
	var comes, leaves []*scope
	at := slices.Index(set, gone)
	if gone != nil {
		set = slices.Delete(set, at, at+1)
		leaves = append(leaves, gone)
	} else {
		at = len(set)
	}
	if come != nil {
		set = slices.Insert(set, at, come) // in the place of gone
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

// scope returns the scope of an engaged cluster, or false if no cluster of that name is engaged.
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

// Engaged returns the names of the engaged clusters, in the order in which they were engaged. It does not block.
func (c *Clusters[T]) Engaged() []string {
	var names []string
	for _, s := range c.gate.scopes() {
		names = append(names, s.name())
	}
	return names
}

// SyncedIn reports whether the first list of a cluster is in the store. If so, an object that Get of [Clusters.In] does not find does
// not exist in the cluster. SyncedIn does not block. For a cluster that is not engaged, it returns false.
func (c *Clusters[T]) SyncedIn(cluster string) bool {
	s, ok := c.scope(cluster)
	return ok && s.listed.Load()
}

// WaitForSyncIn blocks until the first list of a cluster is in the store, and then returns nil. It returns a *SyncError if ctx or the
// informer ends first. If the cluster is not engaged, or is disengaged meanwhile, the error wraps [ErrNotEngaged]. WaitForSyncIn may
// be called before Run, but not in a watcher's callback.
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

// WaitForVersionIn is like [CustomCacheInformer.WaitForVersion] for one cluster. The error wraps [ErrNotEngaged] if the cluster is
// not engaged, is disengaged meanwhile, or gets a source with another UID from [Clusters.Replace].
func (i *CustomCacheInformer[T]) WaitForVersionIn(ctx context.Context, cluster, version string) error {
	for last := (*scope)(nil); ; {
		s, ok := i.roster.scope(cluster)
		if !ok || s == last {
			return i.failed("WaitForVersionIn", cluster, ErrNotEngaged)
		}
		if err := i.waitForVersion(ctx, s, version); !errors.Is(err, ErrNotEngaged) || !s.passes {
			return err
		}
		last = s // a stored cluster, which was engaged meanwhile
	}
}

// ServerVersionIn is like [CustomCacheInformer.ServerVersion] for one cluster. If it is not engaged, the error wraps [ErrNotEngaged].
func (i *CustomCacheInformer[T]) ServerVersionIn(ctx context.Context, cluster string) (string, error) {
	s, ok := i.roster.scope(cluster)
	if !ok {
		return "", i.failed("ServerVersionIn", cluster, ErrNotEngaged)
	}
	version, err := s.Newest(ctx)
	return version, i.failed("ServerVersionIn", cluster, err)
}
