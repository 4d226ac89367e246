package shards_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/shards"
)

// caller is a Worker that has one delete in each bucket. Each of its methods calls its set.
type caller struct {
	set     *shards.Set
	stopped chan struct{}

	mu     sync.Mutex
	called map[string]int
	left   map[int]bool // the buckets with a delete that is not handled
}

func newCaller(set *shards.Set, buckets int) *caller {
	c := &caller{set: set, stopped: make(chan struct{}), called: map[string]int{}, left: map[int]bool{}}
	for b := range buckets {
		c.left[b] = true
	}
	return c
}

// call calls all methods of the set that do not block.
func (c *caller) call(method string) {
	c.set.Health()
	c.set.Has(c.set.Bucket("default/a"))
	c.set.ByNamespace()
	if _, done, ok := c.set.Enter(context.Background(), 0); ok {
		done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.called[method]++
}

func (c *caller) Connected() bool { c.call("Connected"); return true }

func (c *caller) Keys() string { c.call("Keys"); return "string" }

func (c *caller) WaitForSync(context.Context) error { c.call("WaitForSync"); return nil }
func (c *caller) Stopped() <-chan struct{}          { c.call("Stopped"); return c.stopped }
func (c *caller) Seen() shards.Versions             { c.call("Seen"); return shards.Versions{"0": "5"} }
func (c *caller) Known() shards.Versions            { c.call("Known"); return shards.Versions{"0": "5"} }

func (c *caller) Queue(context.Context, shards.Buckets) error { c.call("Queue"); return nil }
func (c *caller) Missing(context.Context, shards.Versions) shards.Versions {
	c.call("Missing")
	return nil
}
func (c *caller) CatchUp(context.Context, shards.Versions) error { c.call("CatchUp"); return nil }
func (c *caller) Fresh(context.Context, time.Duration) error     { c.call("Fresh"); return nil }

func (c *caller) Handle(keys []string)     { c.call("Handle"); c.leave(keys, true) }
func (c *caller) ForgetKeys(keys []string) { c.call("ForgetKeys"); c.leave(keys, false) }

func (c *caller) leave(keys []string, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		bucket, _ := strconv.Atoi(strings.TrimPrefix(key, "default/"))
		c.left[bucket] = left
	}
}

func (c *caller) Deletes(bucket int) []string {
	c.call("Deletes")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left[bucket] {
		return []string{fmt.Sprint("default/", bucket)}
	}
	return nil
}

func (c *caller) Handled(context.Context, shards.Buckets) map[string]shards.Range {
	c.call("Handled")
	return map[string]shards.Range{"0": {After: "1", To: "5"}}
}

// Forget says that the other replica knows of no delete.
func (c *caller) Forget(buckets shards.Buckets, _ map[string]shards.Range) (unknown []string) {
	c.call("Forget")
	for b := range buckets {
		unknown = append(unknown, c.Deletes(b)...)
	}
	slices.Sort(unknown)
	return unknown
}

// The set holds no lock while it calls a worker, which may so call the set.
func TestAWorkerMayCallItsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		var workers []*caller
		var ends []context.CancelFunc
		done := make(chan error)
		for _, name := range []string{"a", "b", "c"} {
			set, err := shards.New(w.client.CoordinationV1().Leases("default"), options(name))
			if err != nil {
				t.Fatal(err)
			}
			c := newCaller(set, 16)
			if err := set.Join("worker", c); err != nil {
				t.Fatal(err)
			}
			workers = append(workers, c)
			ctx, cancel := context.WithCancel(t.Context())
			ends = append(ends, cancel)
			go func() { done <- set.Run(ctx) }()
			time.Sleep(10 * time.Second)
		}
		if n := workers[0].set.Health().Owned; n < 5 || n > 6 {
			t.Errorf("the first of three replicas has %d of 16 buckets", n)
		}
		for _, end := range ends {
			end()
			if err := <-done; err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Second)
		}
		for _, method := range []string{
			"WaitForSync", "Stopped", "Seen", "Known", "ForgetKeys", "Handle", "Queue", "CatchUp", "Deletes", "Handled", "Forget",
		} {
			if workers[0].called[method]+workers[1].called[method]+workers[2].called[method] == 0 {
				t.Errorf("no set has called %s", method)
			}
		}
	})
}

// A replica leaves the set when one of its workers stops.
func TestASetEndsWithItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		set, err := shards.New(w.client.CoordinationV1().Leases("default"), options("a"))
		if err != nil {
			t.Fatal(err)
		}
		c := newCaller(set, 0)
		if err := set.Join("worker", c); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- set.Run(ctx) }()
		time.Sleep(time.Second)
		if n := set.Health().Owned; n != 16 {
			t.Errorf("it has %d buckets", n)
		}
		close(c.stopped)
		time.Sleep(time.Second)
		if n := set.Health().Owned; n != 0 {
			t.Errorf("it has %d buckets when its worker has stopped", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestJoinChecksItsArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		set, err := shards.New(w.client.CoordinationV1().Leases("default"), options("a"))
		if err != nil {
			t.Fatal(err)
		}
		refused := func(err error, want string) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		refused(set.Run(t.Context()), "set test: no worker has joined")
		c := newCaller(set, 0)
		refused(set.Join("worker", nil), `the worker "worker" is nil`)
		refused(set.Join("worker", (*caller)(nil)), `the worker "worker" is nil`)
		refused(set.Join("", c), "the name of the worker is empty")
		if err := set.Join("worker", c); err != nil {
			t.Fatal(err)
		}
		refused(set.Join("worker", c), `another worker has the name "worker"`)

		ctx, cancel := context.WithCancel(t.Context())
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		var late *informer.SyncError
		if err := set.WaitForSync(short); !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitForSync before Run: %v", err)
		}
		done := make(chan error)
		go func() { done <- set.Run(ctx) }()
		if err := set.WaitForSync(t.Context()); err != nil {
			t.Errorf("WaitForSync: %v", err)
		}
		if err := set.Join("other", c); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("Join after Run: %v", err)
		}
		if err := set.Run(ctx); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("the second Run: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := set.WaitForSync(short); err != nil {
			t.Errorf("WaitForSync of a set that had joined: %v", err)
		}
	})
}

// A set that ends before it has joined says so to all that wait.
func TestWaitForSyncEndsWithTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		leases := &link{Leases: w.client.CoordinationV1().Leases("default"), world: w, isCut: true}
		set, err := shards.New(leases, options("a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Join("worker", newCaller(set, 0)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done, waited := make(chan error), make(chan error)
		go func() { done <- set.Run(ctx) }()
		go func() { waited <- set.WaitForSync(t.Context()) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := <-waited; !errors.Is(err, informer.ErrStopped) {
			t.Errorf("WaitForSync returned %v", err)
		}
	})
}
