package shards_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

// The plan knows how many objects each bucket had when the ranges were cut.
func TestReplicasCacheAboutAsManyObjects(t *testing.T) {
	inDividedWorld(t, 0, func(t *testing.T, w *world) {
		const large, total = 400, 400 + 19*30 // namespace 19 has 41 %
		for space := range 20 {
			for n := range map[bool]int{true: large, false: 30}[space == 19] {
				w.write(20*n+space, "1")
			}
		}
		var all []*replica
		for _, name := range []string{"a", "b", "c", "d"} {
			all = append(all, w.start(name))
			w.settled(time.Minute)
			w.balanced(all...)
			for _, r := range all {
				if n := r.cache.Health().Objects; n > max(large, total/len(all))*6/5 {
					t.Errorf("of %d replicas, %s has %d of %d objects", len(all), r.name, n, total)
				}
			}
		}
	})
}

// A bucket that comes back before its objects have left costs no list.
func TestABucketThatComesBackSoonIsNotListedAgain(t *testing.T) {
	inDividedWorld(t, 100, func(t *testing.T, w *world) {
		a := w.start("a")
		w.settled(time.Minute)
		lists := func() (n int) {
			for _, r := range w.objects.Requests() {
				if r.Options.FieldSelector == "" && (r.Verb == "list" || r.Options.SendInitialEvents != nil) {
					n++
				}
			}
			return n
		}
		before := lists()
		a.link.lag.Store(int64(time.Hour))
		time.Sleep(14 * time.Second) // the session is lost
		a.link.lag.Store(0)
		w.settled(5 * time.Second)
		w.balanced(a)
		if a.set.Health().LostSessions != 1 {
			t.Fatalf("the session was not lost: %+v", a.set.Health())
		}
		time.Sleep(time.Minute)
		if n := lists() - before; n != 0 {
			t.Errorf("there are %d lists", n)
		}
		w.settled(time.Second)
		w.apart(a)
	})
}

// A replica that gets a bucket back, whose objects it still has, does not wait for a change or a
// bookmark to know that they are as new as those of the other replica, which has seen a change of an
// object that the server does not send to this one.
func TestABucketThatComesBackSoonDoesNotWaitForAnEvent(t *testing.T) {
	for range 10 { // by chance, each of the two replicas gets the bucket back that it had
		inDividedWorld(t, 100, func(t *testing.T, w *world) {
			eight := func(opts *shards.Options, _ *replica) { opts.Buckets = 8 }
			a, b := w.start("a", selects, eight), w.start("b", selects, eight)
			w.settled(time.Minute)
			before := map[int]bool{}
			for bucket := range 8 {
				before[bucket] = sharding.Of(a.set).Has(bucket)
			}
			c := w.start("c", selects, eight)
			w.settled(2 * time.Second)
			for n := range 100 {
				if bucket := w.bucket(name(n)); sharding.Of(c.set).Has(bucket) && !before[bucket] {
					w.write(n, "2")
					break
				}
			}
			w.settled(time.Second)
			c.stop()
			time.Sleep(2 * time.Second)
			for bucket := range 8 {
				if !sharding.Of(a.set).Has(bucket) && !sharding.Of(b.set).Has(bucket) {
					t.Errorf("bucket %d waits", bucket)
				}
			}
			w.apart(a, b)
		})
	}
}

// An API server may understand another version of the selector, and a proxy before it may take no long
// requests.
func TestASelectorThatTheServerRefusesIsLeftOut(t *testing.T) {
	answer := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{}, "", "too long", 0, true)
	}
	for name, refusal := range map[string]error{
		"served":  nil,
		"ignored": errors.New("invalid shard selector: no such function"),
		"414":     answer(http.StatusRequestURITooLong),
		"431":     answer(http.StatusRequestHeaderFieldsTooLarge),
	} {
		testkit.InBubble(t, name, func(t *testing.T) {
			w := newDividedWorld(t, 100)
			server := &selecting{refusal: refusal}
			a, b := w.start("a", server.serves), w.start("b")
			w.settled(time.Minute)
			w.apart(a, b)
			want := "ignored"
			if refusal == nil {
				want = "served"
			}
			for _, when := range []string{"at first", "after the next watch"} {
				if got := a.set.Health().Selector; got != want {
					t.Errorf("%s, the selector is %q", when, got)
				}
				w.objects.Disconnect()
				time.Sleep(time.Minute)
			}
			if server.asked.Load() == 0 || b.cache.Health().Foreign == 0 {
				t.Errorf("%d requests had a selector, and %d objects of others came without one", server.asked.Load(), b.cache.Health().Foreign)
			}
		})
	}
}

// When another API server takes over, the first request may still fail with the connection of the old one.
func TestAnotherServerIsNoticedAtItsFirstWatch(t *testing.T) {
	inDividedWorld(t, 100, func(t *testing.T, w *world) {
		server := &selecting{}
		a := w.start("a", server.serves)
		w.start("b")
		w.settled(time.Minute)
		for n, ignores := range []bool{true, false, true, false} {
			server.ignores.Store(ignores)
			server.breaks.Store(n < 2)
			w.objects.Disconnect()
			time.Sleep(time.Minute)
			if got := a.set.Health().Selector; (got == "ignored") != ignores || server.breaks.Load() {
				t.Errorf("the server ignores selectors: %v, and Health shows %q", ignores, got)
			}
		}
	})
}

func TestSourceChecksItsArguments(t *testing.T) {
	inDividedWorld(t, 1, func(t *testing.T, w *world) {
		all := informer.ListWatch(w.client.CoreV1().ConfigMaps(""))
		opts := options("a")
		whole, err := shards.New(w.api, opts)
		testkit.Must(t, err)
		if _, err := whole.Source(all); err == nil || !strings.Contains(err.Error(), "Options.ByNamespace is not set") {
			t.Errorf("without ByNamespace: %v", err)
		}
		r := w.start("a")
		w.settled(time.Second)
		if _, err := r.set.Source(nil); err == nil || !strings.Contains(err.Error(), "the source is nil") {
			t.Errorf("without a source: %v", err)
		}
		if _, err := r.set.Source(all); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("after Run: %v", err)
		}
	})
}

// divides returns a set, which does not run, and its source of the objects.
func (w *world) divides() (*shards.Set, cache.ListerWatcher) {
	opts := options("a")
	opts.ByNamespace = true
	set, err := shards.New(w.api, opts)
	testkit.Must(w.t, err)
	own, err := set.Source(w.objects)
	testkit.Must(w.t, err)
	return set, own
}

func TestAnUnreadSourceIsAnError(t *testing.T) {
	inDividedWorld(t, 1, func(t *testing.T, w *world) {
		r := w.start("a", func(_ *shards.Options, r *replica) { r.extra, r.mayFail = true, true })
		time.Sleep(time.Second)
		r.reports("source 2 of Source: no informer that has started reads it")
	})
}

func TestASourceThatTwoInformersReadIsAnError(t *testing.T) {
	inDividedWorld(t, 1, func(t *testing.T, w *world) {
		set, own := w.divides()
		var group informer.Group
		for _, name := range []string{"one", "two"} {
			inf, err := informer.NewFrom(own, informer.Options[*corev1.ConfigMap]{Name: name})
			testkit.Must(t, err)
			c, err := enqueue.NewController(nothing, enqueue.Options{Name: name + " keys", Shards: set}, enqueue.For(inf))
			testkit.Must(t, err)
			testkit.Must(t, errors.Join(group.Add(inf), group.Add(c)))
		}
		testkit.Must(t, group.Add(set))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := group.Run(ctx); err == nil || !strings.Contains(err.Error(), "source 1 of Source: two informers read it") {
			t.Errorf("Run returned %v", err)
		}
	})
}

// An informer that reads a source of a set has no objects while the replica has no buckets.
func TestASourceOfASetThatDoesNotRunDeliversNothing(t *testing.T) {
	inDividedWorld(t, 10, func(t *testing.T, w *world) {
		_, own := w.divides()
		inf, err := informer.NewFrom(own, informer.Options[*corev1.ConfigMap]{})
		testkit.Must(t, err)
		informertest.Run(t, inf)
		w.writeAll("2")
		time.Sleep(time.Minute)
		if h := inf.Health(); h.Objects != 0 || h.Foreign != 0 {
			t.Errorf("it has %d objects, and has dropped %d", h.Objects, h.Foreign)
		}
	})
}

// source returns the source of all of a replica's ConfigMaps.
func (r *replica) source() cache.ListerWatcher {
	if r.server != nil {
		return r.server
	}
	return configMaps{r.link}
}

// newCache returns an informer over the objects of a replica, or over all.
func (r *replica) newCache(opts informer.Options[*corev1.ConfigMap]) (*informer.CustomCacheInformer[*corev1.ConfigMap], error) {
	if !r.world.divided {
		return informer.NewFrom(configMaps{r.link}, opts)
	}
	own, err := r.set.Source(r.source())
	if err != nil {
		return nil, err
	}
	if r.extra {
		if _, err := r.set.Source(r.source()); err != nil {
			return nil, err
		}
	}
	return informer.NewFrom(own, opts)
}

func nothing(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil }
