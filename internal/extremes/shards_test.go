package extremes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

var shardsTrials = map[string]extremes.Trial{
	"shards.Options.Buckets":       extremes.Field("max -1 min", nil, inBubble(dividesKeys)),
	"shards.Options.LeaseDuration": extremes.Field("max -1 min", nil, inBubble(dividesKeys)),
	"shards.Options.RenewEvery":    extremes.Field("max -1 min", nil, inBubble(dividesKeys)),
	"shards.Options.Margin":        extremes.Field("max -1 min", nil, inBubble(dividesKeys)),
	"shards.Options.DrainTimeout":  extremes.Field("min", nil, inBubble(dividesKeys)),
}

// divided is a program of several replicas that divide the keys of some objects.
type divided struct {
	t       *testing.T
	client  *fake.Clientset
	objects *source

	mu    sync.Mutex
	calls map[string][]string // the replicas that have reconciled a key, since the last look
	busy  map[string]bool     // the keys that are being reconciled
	ended map[string]int      // how many calls their ctx has ended, by replica
	slow  time.Duration       // how long a call takes, unless its ctx ends
}

func newDivided(t *testing.T, objects int) *divided {
	d := &divided{
		t: t, client: fake.NewClientset(), objects: informertest.NewSource[configMap](),
		calls: map[string][]string{}, busy: map[string]bool{}, ended: map[string]int{},
	}
	informertest.NewSource[*coordinationv1.Lease]().Serve(&d.client.Fake, "leases", &coordinationv1.LeaseList{})
	for n := range objects {
		d.objects.Apply(object(fmt.Sprint(n), "0"))
	}
	return d
}

// member is one replica.
type member struct {
	set    *shards.Set
	leases *cutLeases
	stop   func()
}

// cutLeases refuses changes when they are cut off.
type cutLeases struct {
	coordinationclient.LeaseInterface
	mu  sync.Mutex
	cut bool
}

func (l *cutLeases) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := l.refuses(ctx); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Update(ctx, lease, opts)
}

func (l *cutLeases) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := l.refuses(ctx); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Create(ctx, lease, opts)
}

// refuses returns an error for a request that is cut off, or that comes after the end of its ctx.
func (l *cutLeases) refuses(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return errors.New("cut off")
	}
	return ctx.Err()
}

// start starts a replica. It returns the error with which the options are refused.
func (d *divided) start(name string, opts shards.Options) (*member, error) {
	opts.Name, opts.Identity = "set", name
	m := &member{leases: &cutLeases{LeaseInterface: d.client.CoordinationV1().Leases("default")}}
	var err error
	if m.set, err = shards.New(m.leases, opts); err != nil {
		return nil, err
	}
	inf := testkit.NewInformer(d.t, d.objects, options{})
	c, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		return 0, d.reconcile(ctx, name, key.Name)
	}, enqueue.Options{Name: "controller", Workers: 4, Shards: m.set, ErrorHandler: fails(d.t)}, enqueue.For(inf))
	if err != nil {
		d.t.Fatal(err)
	}
	group := &informer.Group{ErrorHandler: func(context.Context, error) {}}
	if err := errors.Join(group.Add(inf), group.Add(c), group.Add(m.set)); err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Errorf("Run of %s: %v", name, err)
		}
	})
	return m, nil
}

func (d *divided) reconcile(ctx context.Context, replica, key string) error {
	d.mu.Lock()
	if d.busy[key] {
		d.t.Errorf("%s is reconciled twice at the same time", key)
	}
	d.busy[key] = true
	slow := d.slow
	d.mu.Unlock()
	err := ctx.Err()
	if slow > 0 { // not time.After(0), see golang/go#78156
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.busy, key)
	if err != nil {
		d.ended[replica]++
		return err
	}
	d.calls[key] = append(d.calls[key], replica)
	return nil
}

// expect changes all objects, and expects that each of the replicas reconciles some of them, and no
// two the same.
func (d *divided) expect(replicas ...string) {
	d.t.Helper()
	d.mu.Lock()
	clear(d.calls)
	d.mu.Unlock()
	for _, obj := range d.objects.Objects() {
		d.objects.Apply(object(obj.Name, fmt.Sprint(time.Now().UnixNano())))
	}
	testkit.SleepBubble(time.Minute)
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, obj := range d.objects.Objects() {
		by := d.calls[obj.Name]
		if len(by) != 1 {
			d.t.Errorf("%s was reconciled by %q, want by one replica", obj.Name, by)
		}
		all = append(all, by...)
	}
	slices.Sort(all)
	if all = slices.Compact(all); !slices.Equal(all, replicas) {
		d.t.Errorf("keys were reconciled by %q, want by %q", all, replicas)
	}
}

// dividesKeys checks that replicas divide keys, that one of them leaves when its calls have returned
// or when their ctx has ended, and that another one is replaced when it cannot renew its session.
func dividesKeys(t *testing.T, opts shards.Options) error {
	d := newDivided(t, 60)
	a, err := d.start("a", opts)
	if err != nil {
		return err
	}
	testkit.SleepBubble(time.Minute)
	d.expect("a")
	b, err := d.start("b", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer b.stop()
	testkit.SleepBubble(time.Minute)
	want := []string{"a", "b"}
	d.expect(want...)

	// The buckets of the third replica wait for the calls.
	d.mu.Lock()
	d.slow = 10 * time.Second
	d.mu.Unlock()
	d.objects.Apply(object("0", "slow"))
	d.objects.Apply(object("1", "slow"))
	synctest.Wait()
	c, err := d.start("c", opts)
	if err != nil {
		t.Fatal(err)
	}
	testkit.SleepBubble(time.Minute)
	d.mu.Lock()
	d.slow = 0
	if len(d.ended) > 0 && opts.DrainTimeout >= 0 {
		t.Errorf("the ctx of calls has ended: %v", d.ended)
	}
	d.mu.Unlock()
	testkit.SleepBubble(time.Minute)
	d.expect("a", "b", "c")

	c.stop()
	testkit.SleepBubble(time.Minute)
	d.expect(want...)

	a.leases.mu.Lock()
	a.leases.cut = true
	a.leases.mu.Unlock()
	testkit.SleepBubble(2 * max(time.Minute, opts.LeaseDuration))
	d.expect("b")
	a.leases.mu.Lock()
	a.leases.cut = false
	a.leases.mu.Unlock()
	testkit.SleepBubble(2 * max(time.Minute, opts.LeaseDuration))
	d.expect(want...)
	a.stop()
	testkit.SleepBubble(time.Minute)
	d.expect("b")
	return nil
}

// TestShardsWorkAtTheLimitsOfTheirTimes tries times that are accepted and are not extremes of their
// type.
func TestShardsWorkAtTheLimitsOfTheirTimes(t *testing.T) {
	for name, opts := range map[string]shards.Options{
		"a small margin": {Margin: 100 * time.Millisecond},
		"a long lease":   {LeaseDuration: 24 * time.Hour, RenewEvery: 8 * time.Hour, Margin: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && opts.LeaseDuration > 0 {
				t.Skip("the simulated days take 20 s")
			}
			if err := inBubble(dividesKeys)(t, opts); err != nil {
				t.Error(err)
			}
		})
	}
}
