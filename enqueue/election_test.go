package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// cluster is what two replicas of one program share.
type cluster struct {
	*testing.T
	client *fake.Clientset
	down   atomic.Bool // the first replica cannot renew its lease
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, client: fake.NewClientset()}
	c.client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		lease := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		if c.down.Load() && *lease.Spec.HolderIdentity != "second" {
			return true, nil, errors.New("the API server cannot be reached")
		}
		return false, nil, nil
	})
	return c
}

// join makes p a replica. ended gets what runElected returns.
func (c *cluster) join(p *program, name string) (ended chan error) {
	elected, lost := make(chan struct{}), make(chan struct{})
	p.opts.Elected, p.opts.Lost = elected, lost
	ended = make(chan error, 1)
	p.run = func(ctx context.Context, group *informer.Group) error {
		ended <- runElected(ctx, group, &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "website"},
			Client:     c.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}, elected, lost)
		return nil
	}
	return ended
}

// Two replicas of one program take turns, with client-go's leaderelection and the function that
// docs/operator.md shows.
func TestTheNextLeaderReconcilesEverything(t *testing.T) {
	for _, lost := range []bool{false, true} {
		testkit.InBubble(t, fmt.Sprint("the lease is lost ", lost), func(t *testing.T) {
			c := newCluster(t)
			first := newProgram(t, pod("a"), pod("b"), pod("c"), pod("d"))
			second := newProgram(t)
			second.source = first.source
			ended := c.join(first, "first")
			c.join(second, "second")
			first.start()
			first.called("a", "b", "c", "d")
			second.start()
			if h := second.controller.Health(); !h.Standby || second.pods.Health().Objects != 4 {
				t.Errorf("the second replica has %d objects, and %+v", second.pods.Health().Objects, h)
			}
			if err := second.group.Ready(); err != nil {
				t.Errorf("the second replica is not ready: %v", err)
			}
			first.delete("a")
			first.called("a", "a", "b", "c", "d")

			if lost {
				c.down.Store(true)
			} else {
				first.stop()
			}
			if err := <-ended; (err != nil) != lost {
				t.Errorf("the first replica returned %v", err)
			}
			_, err := first.source.Delete(key{Namespace: "ns", Name: "b"}) // while no replica is the leader
			testkit.Must(first.t, err)
			first.source.Apply(pod("e"))
			synctest.Wait()
			if lost { // otherwise the second may be the leader already
				second.called()
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			second.called("a", "b", "c", "d", "e")
			second.delete("c")
			second.called("a", "b", "c", "c", "d", "e")
			time.Sleep(time.Minute) // for so long, another watcher could inherit the delete
			second.tombstones(0)
			first.called("a", "a", "b", "c", "d")
		})
	}
}

// ReleaseOnCancel lets another replica begin at once. So a call that is under way must end first.
func TestALeaderKeepsItsLeaseUntilItsLastCallHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		first, second := newProgram(t, pod("a")), newProgram(t)
		second.source = first.source
		c.join(first, "first")
		c.join(second, "second")
		returns := make(chan struct{})
		first.use(func(context.Context, string, int) (time.Duration, error) {
			<-returns
			return 0, nil
		})
		first.start()
		second.start()
		go first.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		second.called()
		close(returns)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		second.called("a")
	})
}

// The Pods of the second source are in memory, so their deletes have no tombstones.
func TestADeleteWithoutATombstoneReleasesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStandby(t, pod("a"))
		children := informertest.NewSource(pod("a"))
		s.sources = func(pods *podInformer) []enqueue.Source[key] {
			inMemory, err := informer.NewFrom(children, informer.Options[*corev1.Pod]{Name: "children"})
			testkit.Must(s.t, err)
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			go func() { _ = inMemory.Run(ctx) }()
			return []enqueue.Source[key]{enqueue.For(pods), enqueue.For(inMemory)}
		}
		s.start()
		s.delete("a")
		_, err := children.Delete(key{Namespace: "ns", Name: "a"})
		testkit.Must(s.t, err)
		s.tombstones(1)
		s.elect()
		s.rest()
		s.called("a")
		s.tombstones(0)
	})
}
