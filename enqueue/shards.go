package enqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/internal/tombstone"
)

// sharded connects a controller with a set of replicas. It implements sharding.Worker.
//
// The controller gets every event. It drops the keys of objects that belong to other replicas: the replica that gets a
// bucket reads all of its objects. Like a standby, it keeps the keys of their deletes.
type sharded[K comparable] struct {
	controller *Controller[K]
	set        sharding.Set

	mu        sync.Mutex
	delivered map[string]string // by source: the feed got everything up to this version
	order     []K               // the keys of deletes, each once, the oldest first; some are handled
	// replays has the replays that may still be registered, because a mapper fails.
	replays []replay
	ended   bool
	// These are by source, only for the sources of clusters.
	cut    map[string]time.Time // since when the source has not been connected
	behind map[string]answer    // the first version that a bucket did not get in time, and since when it has waited

	asking  sync.Mutex // protects answers, and is held during requests
	answers map[string]answer
}

// answer is the version that a source had, or should have had, at a time.
type answer struct {
	version string // "" if it has not answered
	at      time.Time
}

// recent is how old an answer may be. All buckets ask at the same time, so that one answer serves all. It is shorter
// than the time that a bucket waits before it asks.
const recent = 5 * time.Second

// outOfReach is how long buckets wait for a cluster that is cut off or behind. The buckets have keys of all clusters,
// and calls for keys of this cluster fail in every replica that cannot reach it.
const outOfReach = 30 * time.Second

// cache is the part of an informer that shows how new it is.
type cache interface {
	Versions() []informer.SourceVersions
	WaitForVersion(ctx context.Context, namespace, version string) error
	WaitForVersionIn(ctx context.Context, cluster, version string) error
	ServerVersion(ctx context.Context, namespace string) (string, error)
	ServerVersionIn(ctx context.Context, cluster string) (string, error)
}

// waitForVersion waits until a cache has a version. For a cluster or a namespace that is no longer read, it does not wait.
func waitForVersion(ctx context.Context, of cache, v informer.SourceVersions, version string) error {
	if v.Cluster != "" {
		if err := of.WaitForVersionIn(ctx, v.Cluster, version); !errors.Is(err, informer.ErrNotEngaged) {
			return err
		}
		return nil
	}
	read := func(now informer.SourceVersions) bool { return now.Namespace == v.Namespace }
	if err := of.WaitForVersion(ctx, v.Namespace, version); ctx.Err() != nil || slices.ContainsFunc(of.Versions(), read) {
		return err
	}
	return nil
}

func serverVersion(ctx context.Context, of cache, v informer.SourceVersions) (string, error) {
	if v.Cluster == "" {
		return of.ServerVersion(ctx, v.Namespace)
	}
	return of.ServerVersionIn(ctx, v.Cluster)
}

func (c *Controller[K]) divide() error {
	if c.set == nil {
		return nil
	}
	if t := reflect.TypeFor[K](); t != reflect.TypeFor[Key]() && !portable(t) {
		return fmt.Errorf("Options.Shards: keys of type %v differ between replicas, or have parts that cannot be written: "+
			"they must be made of strings, integers and bools in exported fields", t)
	}
	if t := reflect.TypeFor[K](); c.set.ByNamespace() && t != reflect.TypeFor[types.NamespacedName]() {
		return fmt.Errorf("Options.Shards divides by namespace, which keys of type %v do not allow: they must be NamespacedNames", t)
	}
	c.shard = &sharded[K]{controller: c, set: c.set, delivered: map[string]string{}, answers: map[string]answer{}, cut: map[string]time.Time{}, behind: map[string]answer{}}
	return nil
}

func (s *sharded[K]) bucket(key K) int { return s.set.Bucket(text(key)) }

// foreign reports whether no call for the key may begin in this replica now.
func (s *sharded[K]) foreign(key K) bool { return !s.set.Has(s.bucket(key)) }

func (s *sharded[K]) enter(ctx context.Context, key K) (call context.Context, done func(), ok bool) {
	return s.set.Enter(ctx, s.bucket(key))
}

// eachCache calls f for each namespace or cluster of each informer that reconcile may read, with a name that is the
// same in all replicas. It does not know the members of a group in Options.Reads.
func (s *sharded[K]) eachCache(f func(name string, of cache, v informer.SourceVersions)) {
	all := func(kind string, number int, of cache) {
		for _, v := range of.Versions() {
			f(sourceName(kind, number, of, v.Cluster, v.Namespace), of, v)
		}
	}
	for i, in := range s.controller.inputs {
		all("", i, in.cache)
	}
	for i, r := range s.controller.opts.Reads {
		if of, ok := r.(cache); ok {
			all("reads", i, of)
		}
	}
}

// eachInReach is like eachCache, without the clusters that this replica has not reached for outOfReach, or that have
// been behind for that long.
func (s *sharded[K]) eachInReach(f func(name string, of cache, v informer.SourceVersions)) {
	s.eachCache(func(name string, of cache, v informer.SourceVersions) {
		s.mu.Lock()
		since, cut := s.cut[name]
		late, behind := s.behind[name]
		s.mu.Unlock()
		long := cut && v.Watching == 0 && time.Since(since) >= outOfReach || behind && time.Since(late.at) >= outOfReach
		if !long {
			f(name, of, v)
		}
	})
}

// sourceName returns a name such as "0.ConfigMap/default" or "0.ConfigMap/east|". The name contains the type of the
// objects: another version of the program may have another informer in the same place, and versions of two resources
// must not be compared.
func sourceName(kind string, number int, of cache, cluster, namespace string) string {
	objects := reflect.Indirect(reflect.ValueOf(of)).Type().Name() // CustomCacheInformer[*k8s.io/api/core/v1.ConfigMap]
	objects = strings.TrimSuffix(objects[strings.LastIndexByte(objects, '.')+1:], "]")
	return kind + strconv.Itoa(number) + "." + objects + "/" + object.KeyIn(cluster, types.NamespacedName{Name: namespace})
}

func (s *sharded[K]) name(source int, cluster, namespace string) string {
	return sourceName("", source, s.controller.inputs[source].cache, cluster, namespace)
}

// Keys describes the structure of the keys. The result stays the same if the program renames their type.
func (s *sharded[K]) Keys() string { return shape(reflect.TypeFor[K]()) }

func (s *sharded[K]) WaitForSync(ctx context.Context) error { return s.controller.WaitForSync(ctx) }

func (s *sharded[K]) Stopped() <-chan struct{} { return s.controller.stopped }

// Seen returns the versions of the last changes that reconcile may have read. It does not count bookmarks: the next
// holder would have to wait for a bookmark of its own, for up to a minute.
func (s *sharded[K]) Seen() sharding.Versions {
	seen := sharding.Versions{}
	s.eachCache(func(name string, _ cache, v informer.SourceVersions) {
		if v.Changed != "" {
			seen[name] = v.Changed
		}
	})
	return seen
}

// CatchUp waits until the informers have reached the versions in seen. It waits for all sources at once, and gives up
// on a cluster that is out of reach, see outOfReach. It returns the errors of all waits, joined.
func (s *sharded[K]) CatchUp(ctx context.Context, seen sharding.Versions) error {
	var waits sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	late := map[string]answer{}
	s.eachInReach(func(name string, of cache, v informer.SourceVersions) {
		version := seen[name]
		if _, err := resourceversion.CompareResourceVersion(version, version); err != nil || notAfter(version, v.ResourceVersion) {
			return // there is none, nothing can be compared, or it is there
		}
		waits.Go(func() {
			begun := time.Now()
			err := waitForVersion(ctx, of, v, version)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && v.Cluster != "" {
				late[name] = answer{version, begun}
			}
			errs = append(errs, err)
		})
	})
	waits.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, since := range late {
		if _, known := s.behind[name]; !known {
			s.behind[name] = since
		}
	}
	return errors.Join(errs...)
}

func (s *sharded[K]) Missing(ctx context.Context, seen sharding.Versions) sharding.Versions {
	s.asking.Lock()
	defer s.asking.Unlock()
	var asks sync.WaitGroup
	var mu sync.Mutex // protects s.answers and missing
	missing := sharding.Versions{}
	s.eachInReach(func(name string, of cache, v informer.SourceVersions) {
		if seen[name] == "" || notAfter(seen[name], v.ResourceVersion) {
			return
		}
		mu.Lock()
		now := s.answers[name]
		mu.Unlock()
		asks.Go(func() {
			if time.Since(now.at) > recent {
				version, err := serverVersion(ctx, of, v)
				if err != nil {
					version = "" // Health of the informer shows why
				}
				now = answer{version, time.Now()}
			}
			mu.Lock()
			defer mu.Unlock()
			s.answers[name] = now
			if !notAfter(seen[name], now.version) && notAfter(now.version, seen[name]) {
				missing[name] = now.version
			}
		})
	})
	asks.Wait()
	return missing
}

// Fresh waits until all watches have been open for d. After outOfReach, it no longer waits for those of clusters. If
// ctx ends first, it returns the error of ctx.
func (s *sharded[K]) Fresh(ctx context.Context, d time.Duration) error {
	for begun := time.Now(); ; {
		var left time.Duration
		s.eachInReach(func(_ string, _ cache, v informer.SourceVersions) {
			if v.Cluster == "" || time.Since(begun) < outOfReach {
				left = max(left, d-v.Watching)
			}
		})
		if left <= 0 {
			return nil
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Connected reports whether all sources are connected. Of the sources of clusters, one is enough. The set calls it
// every few seconds. So it also notes since when each cluster has been cut off, and which clusters are no longer
// behind.
func (s *sharded[K]) Connected() bool {
	open, some, one := true, false, false
	cut, behind := map[string]time.Time{}, map[string]answer{}
	s.mu.Lock()
	before, late := s.cut, maps.Clone(s.behind)
	s.mu.Unlock()
	s.eachCache(func(name string, _ cache, v informer.SourceVersions) {
		if was, ok := late[name]; ok && !notAfter(was.version, v.ResourceVersion) {
			behind[name] = was
		}
		switch {
		case v.Cluster == "":
			open = open && v.Watching > 0
		case v.Watching > 0:
			some, one = true, true
		default:
			some = true
			cut[name] = cmp.Or(before[name], time.Now())
		}
	})
	s.mu.Lock()
	s.cut, s.behind = cut, behind
	s.mu.Unlock()
	return open && (one || !some)
}

func (s *sharded[K]) Known() sharding.Versions {
	known := sharding.Versions{}
	s.eachCache(func(name string, _ cache, v informer.SourceVersions) { known[name] = v.ResourceVersion })
	return known
}

func (s *sharded[K]) Queue(ctx context.Context, buckets sharding.Buckets) error {
	wanted := func(key K) bool { return buckets.Has(s.bucket(key)) }
	replays, err := s.controller.replayAll(ctx, wanted)
	s.keep(replays)
	var keys []K
	s.controller.state.eachDelete(func(key K, _ deletion, _ span) bool {
		if wanted(key) {
			keys = append(keys, key)
		}
		return false
	})
	s.controller.add(keys)
	return err
}

// keep stores replays, to remove them when the controller ends.
func (s *sharded[K]) keep(replays []replay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replays = slices.DeleteFunc(s.replays, func(r replay) bool { return channel.Closed(r.reg.Stopped()) })
	s.replays = append(s.replays, replays...)
	if s.ended {
		s.endLocked()
	}
}

func (s *sharded[K]) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.endLocked()
}

func (s *sharded[K]) endLocked() {
	for _, r := range s.replays {
		r.reg.Remove()
	}
}

// deleted notes a delete from a source, whose informer is of. It must not look for the source in the controller's inputs: an
// event may arrive before NewController adds the source there.
func (s *sharded[K]) deleted(ctx context.Context, d deletion, source int, of cache, cluster string, obj metav1.Object, keys []K) {
	at := span{source: sourceName("", source, of, cluster, "")}
	for _, v := range of.Versions() {
		if v.Cluster == cluster && (v.Namespace == "" || v.Namespace == obj.GetNamespace()) {
			at.source, at.to = sourceName("", source, of, cluster, v.Namespace), v.Changed
		}
	}
	c := s.controller
	s.mu.Lock()
	at.after = later(s.delivered[at.source], obj.GetResourceVersion())
	fresh := slices.DeleteFunc(slices.Clone(keys), c.state.waits)
	c.state.deleted(d, at, keys)
	s.order = append(s.order, fresh...)
	dropped := s.dropLocked()
	s.mu.Unlock()
	c.add(keys)
	c.mu.Lock()
	first := dropped > 0 && c.dropped == 0
	c.dropped += dropped
	c.mu.Unlock()
	if first {
		c.reportDropped(ctx)
	}
}

// dropLocked drops the oldest keys of deletes if there are too many. It returns how many it has dropped.
func (s *sharded[K]) dropLocked() (dropped int) {
	state := s.controller.state
	for state.waiting() > s.controller.opts.StandbyDeletes && len(s.order) > 0 {
		key := s.order[0]
		s.order = s.order[1:]
		if state.drop(key) {
			dropped++
		}
	}
	if len(s.order) > 2*state.waiting()+1000 {
		s.order = slices.DeleteFunc(s.order, func(key K) bool { return !state.waits(key) })
	}
	return dropped
}

// later returns the later of two versions. A version that cannot be compared counts as the earlier one.
func later(a, b string) string {
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil && order < 0 {
		return b
	}
	if _, err := resourceversion.CompareResourceVersion(a, a); err != nil {
		return b
	}
	return a
}

// Handled returns which deletes in buckets are handled. It first waits until the controller has received every delete
// up to the current versions.
func (s *sharded[K]) Handled(ctx context.Context, buckets sharding.Buckets) map[string]sharding.Range {
	handled := map[string]sharding.Range{}
	for i, in := range s.controller.inputs {
		versions := in.cache.Versions()
		if in.reg.CatchUp(ctx) != nil {
			continue
		}
		for _, v := range versions {
			if v.Listed != "" {
				handled[s.name(i, v.Cluster, v.Namespace)] = sharding.Range{After: v.Listed, To: v.ResourceVersion}
			}
		}
	}
	s.mu.Lock()
	for name, r := range handled {
		s.delivered[name] = r.To
	}
	s.mu.Unlock()
	s.controller.state.eachDelete(func(key K, _ deletion, at span) bool {
		r, ok := handled[at.source]
		switch {
		case !ok || !buckets.Has(s.bucket(key)) || notAfter(r.To, at.after):
		case notAfter(at.after, r.After) || !notAfter(at.after, at.after): // nothing before it is left
			r.To = r.After
			handled[at.source] = r
		default:
			r.To = at.after
			handled[at.source] = r
		}
		return false
	})
	return handled
}

func (s *sharded[K]) Deletes(bucket int) (keys []string) {
	seen := map[K]bool{}
	s.controller.state.eachDelete(func(key K, _ deletion, _ span) bool {
		if !seen[key] && s.bucket(key) == bucket {
			seen[key] = true
			keys = append(keys, text(key))
		}
		return false
	})
	slices.Sort(keys)
	return keys
}

func (s *sharded[K]) Handle(keys []string) {
	var all []K
	for _, text := range keys {
		key, err := parseKey[K](text)
		if err != nil {
			continue // another version of the program has written it
		}
		all = append(all, key)
		s.controller.state.deleted(deletion{from: s, id: tombstone.ID{Key: text}}, span{}, []K{key})
	}
	c := s.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(all)
}

// Forget forgets the deletes that another replica has handled. It returns the keys of deletes that the other replica
// may not know of.
func (s *sharded[K]) Forget(buckets sharding.Buckets, handled map[string]sharding.Range) (unknown []string) {
	now := s.Known()
	s.controller.state.eachDelete(func(key K, _ deletion, at span) bool {
		r, ok := handled[at.source]
		if !ok || !buckets.Has(s.bucket(key)) {
			return false
		}
		if !notAfter(r.After, at.after) {
			unknown = append(unknown, text(key))
			return false
		}
		to := at.to
		if to == "" {
			to = now[at.source] // it happened before now
		}
		return notAfter(to, r.To)
	})
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

func (s *sharded[K]) ForgetKeys(keys []string) {
	for _, text := range keys {
		if key, err := parseKey[K](text); err == nil {
			s.controller.state.drop(key)
		}
	}
}
