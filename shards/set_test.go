package shards_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

func TestReplicasShareTheBuckets(t *testing.T) {
	inWorld(t, 100, func(t *testing.T, w *world) {
		a := w.start("a")
		w.settled(time.Second)
		w.balanced(a)
		b, c := w.start("b"), w.start("c")
		w.settled(2 * time.Second)
		w.balanced(a, b, c)
		for n := range 100 {
			w.write(n, "2")
		}
		w.settled(time.Second)
		a.stop()
		w.settled(time.Second)
		w.balanced(b, c)
		for n := range 100 {
			w.write(n, "3")
		}
		w.settled(time.Second)
		b.stop()
		c.stop()
		if left := w.leases.Objects(); len(left) != 16 {
			t.Errorf("%d Leases are left, want those of the 16 buckets", len(left))
		}
		w.quiet(a, b, c)
	})
}

// The API server has given a bucket to a replica that does not know it, because the answer was lost. Others
// wait until the replica releases the bucket, if it should not have it.
func TestABucketThatAReplicaDoesNotKnowToHaveIsReleased(t *testing.T) {
	inWorld(t, 100, func(t *testing.T, w *world) {
		a := w.start("a")
		w.settled(10 * time.Second)
		b := w.start("b", func(_ *shards.Options, r *replica) { r.link.loses.Store(true) })
		time.Sleep(100 * time.Millisecond)
		c := w.start("c")
		time.Sleep(100 * time.Millisecond)
		b.link.loses.Store(false)
		w.settled(time.Minute)
		w.balanced(a, b, c)
	})
}

// A replica may be stopped at any moment of its start. It leaves nothing that others wait for.
func TestAReplicaStoppedWhileItJoinsLeavesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		inWorld(t, 0, func(t *testing.T, w *world) {
			w.divided = random.IntN(2) == 0
			w.writeAll("1")
			a := w.start("a")
			w.settled(10 * time.Second)
			lag := time.Duration(random.IntN(3)) * 300 * time.Millisecond
			b := w.start("b", func(_ *shards.Options, r *replica) { r.link.lag.Store(int64(lag)) })
			time.Sleep(time.Duration(random.Int64N(int64(3*lag) + 1)))
			begun := time.Now()
			b.stop()
			if took := time.Since(begun); took > 15*time.Second {
				t.Errorf("with writes that take %v, b stops after %v", lag, took)
			}
			w.settled(time.Second)
			w.balanced(a)
			time.Sleep(time.Minute)
			for _, lease := range w.leases.Objects() {
				if strings.Contains(lease.Name, "-session-") && !strings.HasPrefix(*lease.Spec.HolderIdentity, "a_") {
					t.Errorf("the Lease %s is left", lease.Name)
				}
			}
		})
	}
}

// A replica without the right to update Leases must not leave one more of them each time that it tries.
func TestSessionsThatCannotBeginLeaveNoLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("forbidden")
		})
		a := w.start("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if left := w.leases.Objects(); len(left) > 1 {
			t.Errorf("there are %d Leases", len(left))
		}
		if errs := a.took(); len(errs) == 0 || !strings.Contains(errs[0].Error(), "set test: joining: forbidden") {
			t.Errorf("a reports %v", errs)
		}
	})
}

// A replica without the right to delete Leases must not keep buckets from the others, also if it has none that it releases.
func TestAReplicaThatMayNotDeleteItsLeaseLeaves(t *testing.T) {
	for name, buckets := range map[string]int{"with a bucket": 2, "without a bucket": 1} {
		testkit.InBubble(t, name, func(t *testing.T) {
			w := newWorld(t, 20)
			few := func(opts *shards.Options, _ *replica) { opts.Buckets = buckets }
			a := w.start("a", few)
			w.settled(10 * time.Second)
			b := w.start("b", few)
			w.settled(10 * time.Second)
			stays, leaves := a, b
			if b.owned() == 1 && buckets == 1 {
				stays, leaves = b, a
			}
			w.client.PrependReactor("delete", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("forbidden")
			})
			begun := time.Now()
			leaves.stop()
			leaves.reports("leaving: forbidden")
			w.settled(time.Second)
			if h := stays.set.Health(); h.Replicas != 1 || h.Owned != buckets {
				t.Errorf("%v after the stop, there are %d replicas, and the last has %d buckets", time.Since(begun), h.Replicas, h.Owned)
			}
		})
	}
}

// lateLists has the answers to lists of Leases wait until released is closed, when held is true.
type lateLists struct {
	coordinationclient.LeaseInterface
	held     atomic.Bool
	released chan struct{}
}

func (l *lateLists) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	list, err := l.LeaseInterface.List(ctx, opts)
	if l.held.Load() {
		<-l.released
	}
	return list, err
}

// A replica that joins may read the Lease of another one that leaves, and see its delete first. It must not try to end that
// session again and again.
func TestALeaseThatWasDeletedMeanwhileIsForgotten(t *testing.T) {
	inWorld(t, 20, func(t *testing.T, w *world) {
		var ends atomic.Int64
		w.client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if lease := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease); lease.Annotations[annotationPrefix+"ended"] != "" {
				ends.Add(1)
			}
			return false, nil, nil
		})
		a, b := w.start("a"), w.start("b")
		w.settled(10 * time.Second)
		lists := &lateLists{LeaseInterface: w.api, released: make(chan struct{})}
		w.client.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			lists.held.Store(true) // the next list is that of the replica that joins
			return false, nil, nil
		})
		c := w.start("c", func(_ *shards.Options, r *replica) { r.link.LeaseInterface = lists })
		testkit.SleepBubble(time.Second)
		b.stop()
		testkit.SleepBubble(time.Second)
		lists.held.Store(false)
		close(lists.released)
		w.settled(time.Minute)
		w.balanced(a, c)
		before := ends.Load()
		w.settled(time.Minute)
		if n := ends.Load() - before; n > 0 {
			t.Errorf("in a minute, a session that is no more is ended %d times", n)
		}
	})
}
