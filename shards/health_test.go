package shards_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

func TestASetIsReadyFromTheTimeWhenItHasJoined(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		r := w.start("a", func(_ *shards.Options, r *replica) { r.link.cut() })
		time.Sleep(time.Minute)
		const want = "set test: has not joined: "
		if err := r.set.Health().Ready(); err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, errCut) {
			t.Errorf("before it has joined, Ready returned %v", err)
		}
		if err := r.group.Ready(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("before it has joined, Ready of the group returned %v", err)
		}
		r.link.heal()
		time.Sleep(5 * time.Minute)
		if err := r.group.Ready(); err != nil {
			t.Errorf("when it has joined, Ready of the group returned %v", err)
		}
		r.link.cut()
		time.Sleep(5 * time.Minute)
		h := r.set.Health()
		if h.Session != "" || h.SourceError == nil || h.SourceFailures == 0 {
			t.Errorf("while it is cut off: %+v", h)
		}
		if err := errors.Join(r.group.Ready(), r.group.Live()); err != nil {
			t.Errorf("while it is cut off: %v", err)
		}
		r.link.heal()
		time.Sleep(5 * time.Minute)
		r.stop()
		if err := r.set.Health().Ready(); !errors.Is(err, informer.ErrStopped) || !strings.HasPrefix(err.Error(), "set test: ") {
			t.Errorf("after the stop: %v", err)
		}
	})
}

// The controller reports why it has stopped, and nothing else shows that the set waits for it.
func TestHealthShowsThatAControllerStoppedBeforeTheSetJoined(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		r := w.start("a", func(_ *shards.Options, r *replica) { r.link.cut() })
		testkit.SleepBubble(time.Minute)
		testkit.Must(t, r.group.Remove(r.worker))
		r.link.heal()
		testkit.SleepBubble(time.Minute)
		if err := r.set.Health().Ready(); !errors.Is(err, informer.ErrStopped) || !strings.Contains(err.Error(), "set test: has not joined: controller objects: ") {
			t.Errorf("Ready returned %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.set.WaitForSync(ctx); err == nil || !strings.Contains(err.Error(), "controller objects: ") {
			t.Errorf("WaitForSync returned %v", err)
		}
	})
}

// running runs a group until stop is called, or until the end of the test.
func running(t *testing.T, g *informer.Group) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestASetInAGroupOfItsOwnHasTheGroupReadyWhenItHasJoined(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		a := newAlone(t, w.objects, w.api)
		testkit.Must(t, a.join("objects"))
		var readers, apart informer.Group
		testkit.Must(t, errors.Join(readers.Add(a.controller), apart.Add(a.set)))
		running(t, &apart)
		time.Sleep(time.Minute)
		if err := apart.Ready(); err == nil || err.Error() != "set test: has not joined" {
			t.Errorf("while the controller does not run, Ready returned %v", err)
		}
		running(t, &readers)
		time.Sleep(time.Minute)
		if err := apart.Ready(); err != nil {
			t.Errorf("when the set has joined, Ready returned %v", err)
		}
	})
}

// Otherwise nothing would explain why the controller makes no call.
func TestAControllerReportsThatItsSetDoesNotRun(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		a := newAlone(t, w.objects, w.api)
		testkit.Must(t, a.join("objects"))
		var group informer.Group
		testkit.Must(t, group.Add(a.controller))
		running(t, &group)
		time.Sleep(time.Minute)
		const want = "controller objects: has not synced: set test has not started: add it to the group, or call its Run"
		if err := group.Ready(); err == nil || err.Error() != want {
			t.Errorf("Ready returned %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var late *informer.SyncError
		if err := a.controller.WaitForSync(short); !errors.As(err, &late) || !slices.Contains(late.Late, "Run of set test") {
			t.Errorf("WaitForSync returned %v", err)
		}
		testkit.Must(t, group.Add(a.set))
		time.Sleep(time.Minute)
		if err := group.Ready(); err != nil {
			t.Errorf("when the set runs, Ready returned %v", err)
		}
	})
}

// client-go's fakes accept each update, whatever came before it.
func TestLeasesWithoutVersionsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAlone(t, informertest.NewSource[*corev1.ConfigMap](), fake.NewClientset().CoordinationV1().Leases("default"))
		testkit.Must(t, a.join("worker"))
		stop := a.run()
		time.Sleep(time.Second)
		stop()
		if len(a.reported) == 0 || !strings.Contains(a.reported[0].Error(), "informertest.Source") {
			t.Errorf("reported are %v", a.reported)
		}
	})
}

// TestHealthShowsForHowLongBucketsHaveHadNoOwner does not call Health in between.
func TestHealthShowsForHowLongBucketsHaveHadNoOwner(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var refused atomic.Bool
		w.client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			lease := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
			return refused.Load() && strings.HasPrefix(lease.Name, "test-bucket-"), nil, errors.New("refused")
		})
		a, b := w.start("a"), w.start("b")
		time.Sleep(time.Minute)
		within := func(least, most time.Duration) {
			t.Helper()
			if h := a.set.Health(); h.Unowned == 0 || h.UnownedFor < least || h.UnownedFor > most {
				t.Errorf("%d buckets have had no owner for %v, want from %v to %v", h.Unowned, h.UnownedFor, least, most)
			}
		}
		refused.Store(true)
		b.crash()
		time.Sleep(75 * time.Second)
		within(60*time.Second, 65*time.Second+time.Second) // its session lasts for 15 s, and began up to 5 s before
		refused.Store(false)
		time.Sleep(time.Minute)
		c := w.start("c")
		time.Sleep(time.Minute)
		refused.Store(true)
		c.crash()
		time.Sleep(25 * time.Second)
		within(10*time.Second, 16*time.Second)
		refused.Store(false)
		time.Sleep(time.Minute)
		if h := a.set.Health(); h.Unowned != 0 || h.UnownedFor != 0 || h.Owned != 16 {
			t.Errorf("at the end: %+v", h)
		}
	})
}

func TestHealthOfASetAsJSON(t *testing.T) {
	h := shards.Health{
		Name: "sites", Started: true, Synced: true, SourceError: errors.New("forbidden"), SourceFailures: 2,
		Replica: "replica-0", Session: "replica-0_1", Replicas: 3, Buckets: 64, Owned: 21, CatchingUp: 4, CatchingUpFor: 750 * time.Millisecond, Draining: 2,
		DrainingFor: 1500 * time.Millisecond, Unowned: 5, UnownedFor: 250 * time.Millisecond, Unserved: 3, UnservedFor: 2 * time.Second, Lacking: []string{"added"}, Taken: 30, Released: 9, LostSessions: 7, LostCalls: 6,
	}
	const want = `{"name":"sites","started":true,"stopped":false,"synced":true,"sourceFailures":2,` +
		`"replica":"replica-0","session":"replica-0_1","replicas":3,"buckets":64,"owned":21,"catchingUp":4,"draining":2,"unowned":5,"unserved":3,"lacking":["added"],` +
		`"taken":30,"released":9,"lostSessions":7,"lostCalls":6,"catchingUpSeconds":0.75,"drainingSeconds":1.5,"unownedSeconds":0.25,"unservedSeconds":2}`
	if text, err := json.Marshal(h); err != nil || string(text) != want {
		t.Errorf("%s, %v, want\n%s", text, err, want)
	}
}

// Keys that were given up, and whose buckets have moved, fail no more in the replica that had them.
func TestAReplicaForgetsTheFailuresOfKeysThatMove(t *testing.T) {
	inWorld(t, 0, func(t *testing.T, w *world) {
		write := func(value string) {
			for n := range 40 {
				w.objects.Apply(configMap(name(n), value))
			}
		}
		write("1")
		var bad atomic.Bool
		start := func(id string) *enqueue.Controller[types.NamespacedName] {
			inf, err := informer.NewFrom(w.objects, informer.Options[*corev1.ConfigMap]{})
			testkit.Must(t, err)
			set, err := shards.New(w.api, options(id))
			testkit.Must(t, err)
			c, err := enqueue.NewController(func(context.Context, types.NamespacedName) (time.Duration, error) {
				if bad.Load() {
					return 0, fmt.Errorf("invalid: %w", informer.ErrPermanent)
				}
				return 0, nil
			}, enqueue.Options{Name: "objects", Shards: set, ErrorHandler: testkit.Ignore}, enqueue.For(inf))
			var group informer.Group
			testkit.Must(t, errors.Join(err, group.Add(inf), group.Add(c), group.Add(set)))
			informertest.Run(t, &group)
			return c
		}
		bad.Store(true)
		a := start("a")
		time.Sleep(time.Minute)
		if n := a.Health().Failing; n != 40 {
			t.Errorf("%d keys fail", n)
		}
		bad.Store(false)
		b := start("b")
		time.Sleep(time.Minute)
		if n := a.Health().Failing; n == 0 || n == 40 {
			t.Errorf("%d of 40 keys fail, when some have moved", n)
		}
		write("2") // each replica reconciles its keys
		time.Sleep(time.Minute)
		if of, by := a.Health().Failing, b.Health().Succeeded; of != 0 || by == 0 {
			t.Errorf("%d keys fail, and the other replica has succeeded %d times", of, by)
		}
	})
}

// A call for a key that fails may be under way when its bucket moves. Its replica must not show the key as failing for good.
func TestAReplicaForgetsTheFailuresOfCallsThatAMoveEnds(t *testing.T) {
	inWorld(t, 40, func(t *testing.T, w *world) {
		start := func(id string, bad bool) *enqueue.Controller[types.NamespacedName] {
			inf, err := informer.NewFrom(w.objects, informer.Options[*corev1.ConfigMap]{})
			testkit.Must(t, err)
			opts := options(id)
			opts.DrainTimeout = -1
			set, err := shards.New(w.api, opts)
			testkit.Must(t, err)
			var failed sync.Map
			c, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
				if !bad {
					return 0, nil
				}
				if _, again := failed.LoadOrStore(key, true); !again {
					return 0, errors.New("the first call fails")
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}, enqueue.Options{Name: "objects", Workers: 64, Shards: set, ErrorHandler: testkit.Ignore}, enqueue.For(inf))
			var group informer.Group
			testkit.Must(t, errors.Join(err, group.Add(inf), group.Add(c), group.Add(set)))
			informertest.Run(t, &group)
			return c
		}
		a := start("a", true)
		testkit.SleepBubble(time.Minute)
		if h := a.Health(); h.Failing != 40 || h.Busy != 40 {
			t.Errorf("%d of 40 keys fail, and %d calls are under way", h.Failing, h.Busy)
		}
		b := start("b", false)
		testkit.SleepBubble(time.Minute)
		if h, moved := a.Health(), b.Health().Succeeded; moved == 0 || h.Failing != 40-moved || h.Busy != 40-moved {
			t.Errorf("%d keys fail, and %d calls are under way, when %d of 40 keys have moved", h.Failing, h.Busy, moved)
		}
	})
}
