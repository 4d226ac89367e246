package extremes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/clusters"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

var controlTrials = map[string]extremes.Trial{
	"enqueue.Options.Workers":        extremes.Field("max -1 min", nil, inBubble(reconciles)),
	"enqueue.Options.DrainTimeout":   extremes.Field("-1 min", nil, inBubble(reconciles)),
	"enqueue.Options.MaxAttempts":    extremes.Field("-1 min", nil, inBubble(reconciles)),
	"enqueue.Options.BaseDelay":      extremes.Field("-1 min", nil, inBubble(reconciles)),
	"enqueue.Options.MaxDelay":       extremes.Field("-1 min", nil, inBubble(reconciles)),
	"enqueue.Options.CallTimeout":    extremes.Field("-1 min", nil, inBubble(reconciles)),
	"enqueue.Options.HangTimeout":    extremes.Field("", nil, inBubble(reconciles)),
	"enqueue.Options.StandbyDeletes": extremes.Field("-1 min", nil, inBubble(reconciles)),
	"enqueue.NewController(reconcile) returns again": extremes.Number("", inBubble(func(t *testing.T, again time.Duration) error {
		return controls(t, enqueue.Options{}, again)
	})),
	"shards.Options.Buckets":       extremes.Field("max -1 min", nil, inBubble(divides)),
	"shards.Options.LeaseDuration": extremes.Field("max -1 min", nil, inBubble(divides)),
	"shards.Options.RenewEvery":    extremes.Field("max -1 min", nil, inBubble(divides)),
	"shards.Options.Margin":        extremes.Field("max -1 min", nil, inBubble(divides)),
	"shards.Options.DrainTimeout":  extremes.Field("min", nil, inBubble(divides)),
	"clusters.Directory.Interval":  extremes.Field("-1 min", nil, inBubble(followsDirectory)),
}

// followsDirectory follows an empty directory for a minute.
func followsDirectory(t *testing.T, d clusters.Directory) error {
	d.Path = t.TempDir()
	p, err := clusters.New(d, clusters.Options{}, struct{ clusters.Follower }{})
	if err == nil {
		informertest.Run(t, p)
		time.Sleep(time.Minute)
	}
	return err
}

func reconciles(t *testing.T, opts enqueue.Options) error { return controls(t, opts, 0) }

// controls is the life of a controller: deletes on standby, a key that fails, one that asks for another call, one that
// hangs for an hour, and a stop during a call while another key waits. Each event leads to a call.
func controls(t *testing.T, opts enqueue.Options, again time.Duration) error {
	src, elected := informertest.NewSource[configMap](), make(chan struct{})
	inf := testkit.NewInformer(t, src, options{})
	var mu sync.Mutex
	calls := map[string]int{}
	opts.Name, opts.Elected, opts.Lost, opts.ErrorHandler = "controller", elected, make(chan struct{}), testkit.Ignore
	c, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		mu.Lock()
		calls[key.Name]++
		n := calls[key.Name]
		mu.Unlock()
		switch {
		case key.Name == "fails" && n < 4:
			return 0, errors.New("not yet")
		case key.Name == "again" && n < 3:
			return again, nil
		case key.Name == "hangs":
			select {
			case <-time.After(hour):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		return 0, nil
	}, opts, enqueue.For(inf))
	if err != nil {
		return err
	}
	expect := func(when string, want map[string]int) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		for key, n := range want {
			if calls[key] != n {
				t.Errorf("%s there were %d calls for %s, want %d", when, calls[key], key, n)
			}
		}
	}
	group := &informer.Group{}
	testkit.Must(t, errors.Join(group.Add(inf), group.Add(c)))
	stop := testkit.Start(t, group)
	testkit.SleepBubble(time.Minute)
	for _, name := range []string{"a", "b", "c"} {
		src.Apply(object(name, "1"))
		testkit.SleepBubble(time.Minute)
		_, err := src.Delete(testkit.KeyOf(name))
		testkit.Must(t, err)
		testkit.SleepBubble(time.Minute)
	}
	expect("on standby", map[string]int{"a": 0, "b": 0, "c": 0})
	close(elected)
	testkit.SleepBubble(time.Minute)
	expect("after the election", map[string]int{"a": 1, "b": 1, "c": 1})

	src.Apply(object("fails", "1"))
	src.Apply(object("again", "1"))
	testkit.SleepBubble(hour)
	failed, asked := 4, 1
	if opts.BaseDelay > hour || opts.MaxAttempts == 1 {
		failed = 1
	}
	if again < 0 {
		asked = 3
	}
	expect("an hour later", map[string]int{"fails": failed, "again": asked})
	src.Apply(object("fails", "2")) // an event does not wait for a pause
	src.Apply(object("again", "2"))
	testkit.SleepBubble(time.Minute)
	expect("after an event", map[string]int{"fails": failed + 1, "again": asked + 1})

	src.Apply(object("hangs", "1"))
	testkit.SleepBubble(time.Minute)
	src.Apply(object("a", "2"))
	testkit.SleepBubble(time.Minute)
	testkit.AtMost(t, "the time that the stop takes", testkit.Took(stop), hour)
	if opts.DrainTimeout > 0 {
		expect("after the stop", map[string]int{"a": 2})
	}
	return nil
}

// divides checks that two replicas divide keys, that a call has the time to return before its key moves, that the keys
// of a replica that leaves or cannot renew its session move, and that no key has two calls at once.
func divides(t *testing.T, opts shards.Options) error {
	var (
		objects = informertest.NewSource[configMap]()
		leases  = informertest.NewSource[*coordinationv1.Lease]()
		mu      sync.Mutex
		busy    = map[string]bool{}
		by      = map[string][]string{} // the replicas that have reconciled a key
	)
	for n := range 60 {
		objects.Apply(object(fmt.Sprint(n), "0"))
	}
	start := func(name string) (stop func(), cut *atomic.Bool, err error) {
		client := fake.NewClientset()
		leases.Serve(&client.Fake, "leases", &coordinationv1.LeaseList{})
		cut = new(atomic.Bool)
		for _, verb := range []string{"create", "update"} {
			client.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return cut.Load(), nil, errors.New("cut off")
			})
		}
		opts.Name, opts.Identity = "set", name
		set, err := shards.New(client.CoordinationV1().Leases("default"), opts)
		if err != nil {
			return nil, nil, err
		}
		inf := testkit.NewInformer(t, objects, options{})
		c, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
			mu.Lock()
			if busy[key.Name] {
				t.Errorf("%s is reconciled twice at the same time", key.Name)
			}
			busy[key.Name] = true
			mu.Unlock()
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			mu.Lock()
			defer mu.Unlock()
			delete(busy, key.Name)
			if ctx.Err() == nil {
				by[key.Name] = append(by[key.Name], name)
			}
			return 0, ctx.Err()
		}, enqueue.Options{Name: "controller", Workers: 60, Shards: set, ErrorHandler: testkit.Ignore}, enqueue.For(inf))
		group := &informer.Group{ErrorHandler: testkit.Ignore}
		testkit.Must(t, errors.Join(err, group.Add(inf), group.Add(c), group.Add(set)))
		return testkit.Start(t, group), cut, nil
	}
	expect := func(after time.Duration, replicas ...string) {
		t.Helper()
		testkit.SleepBubble(after)
		mu.Lock()
		by = map[string][]string{}
		mu.Unlock()
		for _, obj := range objects.Objects() {
			objects.Apply(object(obj.Name, fmt.Sprint(time.Now().UnixNano())))
		}
		testkit.SleepBubble(time.Minute)
		var all []string
		for _, obj := range objects.Objects() {
			if len(by[obj.Name]) != 1 {
				t.Errorf("%s was reconciled by %q, want by one replica", obj.Name, by[obj.Name])
			}
			all = append(all, by[obj.Name]...)
		}
		if slices.Sort(all); !slices.Equal(slices.Compact(all), replicas) {
			t.Errorf("keys were reconciled by %q, want by %q", slices.Compact(all), replicas)
		}
	}
	stopA, cut, err := start("a")
	if err != nil {
		return err
	}
	expect(time.Minute, "a")
	for _, obj := range objects.Objects() { // calls are under way when the second replica joins
		objects.Apply(object(obj.Name, "busy"))
	}
	stopB, _, err := start("b")
	testkit.Must(t, err)
	expect(time.Minute, "a", "b")
	cut.Store(true)
	expect(2*max(time.Minute, opts.LeaseDuration), "b")
	cut.Store(false)
	expect(2*max(time.Minute, opts.LeaseDuration), "a", "b")
	stopB()
	expect(time.Minute, "a")
	stopA()
	return nil
}

// These times are accepted, and are not extremes of their type.
func TestShardsWorkAtTheLimitsOfTheirTimes(t *testing.T) {
	for name, opts := range map[string]shards.Options{
		"a small margin": {Margin: 100 * time.Millisecond},
		"a long lease":   {LeaseDuration: 6 * time.Hour, RenewEvery: 2 * time.Hour, Margin: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && opts.LeaseDuration > 0 {
				t.Skip("the simulated day takes 20 s")
			}
			testkit.NoError(t, inBubble(divides)(t, opts))
		})
	}
}
