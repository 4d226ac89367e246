package enqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/internal/tombstone"
)

// behindCache reads 8 namespaces, and is behind in all of them.
type behindCache struct{}

func (*behindCache) Versions() (all []informer.SourceVersions) {
	for n := range 8 {
		all = append(all, informer.SourceVersions{Namespace: fmt.Sprint("ns", n), ResourceVersion: "1"})
	}
	return all
}

func (*behindCache) WaitForVersion(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func (c *behindCache) WaitForVersionIn(ctx context.Context, _, version string) error {
	return c.WaitForVersion(ctx, "", version)
}

func (*behindCache) ServerVersion(context.Context, string) (string, error) { return "5", nil }

func (*behindCache) ServerVersionIn(context.Context, string) (string, error) { return "5", nil }

// The race detector shows whether the answers are protected.
func TestManySourcesAreAskedAtOnce(t *testing.T) {
	c := &Controller[types.NamespacedName]{inputs: []input[types.NamespacedName]{{cache: &behindCache{}}}}
	s := &sharded[types.NamespacedName]{controller: c, answers: map[string]answer{}}
	seen := sharding.Versions{}
	s.eachCache(func(name string, _ cache, _ informer.SourceVersions) { seen[name] = "9" })
	for range 200 {
		if missing := s.Missing(t.Context(), seen); len(missing) != 8 {
			t.Fatal(missing)
		}
	}
}

// embedded is a member that embeds an informer, and not a pointer.
type embedded struct {
	*informer.CustomCacheInformer[*corev1.Pod]
}

func TestReadsMayBeAStruct(t *testing.T) {
	pods, err := informer.NewFrom(informertest.NewSource[*corev1.Pod](), informer.Options[*corev1.Pod]{})
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller[types.NamespacedName]{opts: Options{Reads: []informer.Member{embedded{pods}}}}
	s := &sharded[types.NamespacedName]{controller: c}
	s.Seen() // the set calls it every few seconds
}

// changing reads one namespace.
type changing struct {
	behindCache
	changed string // the version of the last change
}

func (c *changing) Versions() []informer.SourceVersions {
	return []informer.SourceVersions{{Namespace: "ns0", ResourceVersion: c.changed, Changed: c.changed}}
}

// elsewhere is a set in which another replica has all buckets.
type elsewhere struct{ sharding.Set }

func (elsewhere) Bucket(string) int { return 0 }

func (elsewhere) Has(int) bool { return false }

func (elsewhere) ByNamespace() bool { return false }

func (elsewhere) Join(string, sharding.Worker) error { return nil }

// An informer that runs may deliver a delete to a source before NewController has the source's place in the controller.
func TestADeleteMayComeWhileNewControllerIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := informertest.NewSource(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns0", Name: "pod"}})
		pods, err := informer.NewFrom(objects, informer.Options[*corev1.Pod]{})
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, pods)
		key := types.NamespacedName{Namespace: "ns0", Name: "pod"}
		source := For(pods)
		attach := source.attach
		source.attach = func(c *Controller[types.NamespacedName], opts informer.WatcherOptions) (input[types.NamespacedName], error) {
			in, err := attach(c, opts)
			synctest.Wait()
			if _, err := objects.Delete(key); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			return in, err
		}
		nothing := func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil }
		set := struct{ sharding.Handle }{sharding.NewHandle(elsewhere{})}
		c, err := NewController(nothing, Options{Name: "pods", Shards: set}, source)
		if err != nil {
			t.Fatal(err)
		}
		defer c.remove()
		if d := c.shard.Deletes(0); !slices.Equal(d, []string{"ns0/pod"}) {
			t.Errorf("the controller keeps the deletes of %v", d)
		}
		c.state.eachDelete(func(_ types.NamespacedName, _ deletion, at span) bool {
			if at.source != c.shard.name(0, "", "") || at.to == "" {
				t.Errorf("the delete is of %+v", at)
			}
			return false
		})
	})
}

// Children of one owner are deleted again and again, while no call for the owner succeeds.
func TestManyDeletesOfOneKeyAreKeptAsOne(t *testing.T) {
	cache := &changing{}
	c := &Controller[types.NamespacedName]{
		opts: Options{StandbyDeletes: 100}, inputs: []input[types.NamespacedName]{{cache: cache}},
		state: newState[types.NamespacedName](), isEarly: map[types.NamespacedName]int{},
	}
	s := &sharded[types.NamespacedName]{controller: c, set: elsewhere{}, delivered: map[string]string{}}
	c.shard = s
	owner := types.NamespacedName{Namespace: "ns0", Name: "owner"}
	var first, last deletion
	for n := range 20_000 {
		uid := types.UID(fmt.Sprint(n))
		cache.changed = fmt.Sprint(n + 10)
		child := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns0", Name: "child", UID: uid, ResourceVersion: cache.changed}}
		last = deletion{c, tombstone.ID{Key: "ns0/child", UID: uid}}
		if n == 0 {
			first = last
		}
		s.deleted(t.Context(), last, 0, cache, "", child, []types.NamespacedName{owner})
	}
	if waiting := len(c.state.deletes.waiting[owner]); len(s.order) != 1 || waiting != 1 || c.state.keeps(first) || !c.state.keeps(last) {
		t.Errorf("%d places in the order of keys, %d deletes; the first is kept: %v, the last: %v", len(s.order), waiting, c.state.keeps(first), c.state.keeps(last))
	}
	// Another replica may have handled some of the deletes, or may have begun after the first one.
	name, bucket := s.name(0, "", "ns0"), sharding.Buckets{}.Insert(0)
	unknown := s.Forget(bucket, map[string]sharding.Range{name: {After: "5", To: "15"}})
	if len(unknown) != 0 || !c.state.keeps(last) {
		t.Errorf("when only the first deletes are handled, unknown is %v, and the key is kept: %v", unknown, c.state.keeps(last))
	}
	if unknown = s.Forget(bucket, map[string]sharding.Range{name: {After: "11", To: "30000"}}); fmt.Sprint(unknown) != "[ns0/owner]" {
		t.Errorf("when the other replica began after the first delete, unknown is %v", unknown)
	}
}

// odd is a key of some controller.
type odd struct {
	Name   string
	Parts  [2]string
	Number int
}

// Replicas exchange the keys of deletes as texts. Functions of a Watches may return keys that no object has.
func TestKeysAreReadAsTheyWereWritten(t *testing.T) {
	names := []string{"", "a", "a/b", "/", "a|b", "\x00", "\ufffd", `\ufffd`, "é%2F"}
	var plain []types.NamespacedName
	var clustered []Key
	var odds []odd
	for _, x := range []string{"", "a", "é", "\ufffd"} { // namespaces and clusters, which contain no mark
		for _, y := range names {
			plain = append(plain, types.NamespacedName{Namespace: x, Name: y})
			clustered = append(clustered, Key{x, types.NamespacedName{Namespace: x, Name: y}}, Key{"", types.NamespacedName{Namespace: x, Name: y}})
			odds = append(odds, odd{x, [2]string{"", y}, len(odds)})
		}
	}
	areRead(t, plain)
	areRead(t, slices.Compact(clustered))
	areRead(t, odds)
	areRead(t, names)
	// Those that objects have keep their form: replicas of other versions have the same buckets.
	for key, want := range map[types.NamespacedName]string{{Namespace: "shop", Name: "web"}: "shop/web", {Name: "node"}: "node", {Namespace: "a", Name: "b:c"}: "a/b:c"} {
		if got := text(key); got != want {
			t.Errorf("%v is written as %q", key, got)
		}
	}
	if got := text(Key{"east", types.NamespacedName{Namespace: "shop", Name: "web"}}); got != "east|shop/web" {
		t.Errorf("a key of a cluster is written as %q", got)
	}
	if got := text(odd{"a", [2]string{"b/c", "%"}, 7}); got != `{"Name":"a","Parts":["b/c","%"],"Number":7}` {
		t.Errorf("a key of fields is written as %q", got)
	}
}

func areRead[K comparable](t *testing.T, keys []K) {
	t.Helper()
	texts := map[string]K{}
	for _, key := range keys {
		written, err := json.Marshal(text(key)) // as in a Lease
		if err != nil {
			t.Fatal(err)
		}
		var read string
		if err := json.Unmarshal(written, &read); err != nil {
			t.Fatal(err)
		}
		if got, err := parseKey[K](read); err != nil || got != key {
			t.Errorf("%#v is read as %#v: %v", key, got, err)
		}
		if other, ok := texts[read]; ok && other != key {
			t.Errorf("%#v and %#v are both written as %q", other, key, read)
		}
		texts[read] = key
	}
}
