package shards_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

const rangesAnnotation = annotationPrefix + "ranges"

// ranges returns the ranges in their Lease, "" if it is missing.
func (w *world) ranges() string {
	lease, err := w.api.Get(w.t.Context(), "test-ranges", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return lease.Annotations[rangesAnnotation]
}

func (w *world) deleteLeases(part string) {
	w.t.Helper()
	for _, lease := range w.leases.Objects() {
		if strings.Contains(lease.Name, part) {
			if err := w.api.Delete(w.t.Context(), lease.Name, metav1.DeleteOptions{}); err != nil {
				w.t.Error(err)
			}
		}
	}
}

// skew has most objects in one namespace, so that ranges that are cut afterwards are others.
func (w *world) skew() {
	for n := range 200 {
		w.write(n*20+7, "1")
	}
}

// Replicas that start at the same time come to the same ranges, also if counting fails at first.
func TestReplicasAgreeOnTheRanges(t *testing.T) {
	inDividedWorld(t, 100, func(t *testing.T, w *world) {
		w.objects.Fail("list", errors.New("not now"), 5)
		var all []*replica
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, w.start(name))
		}
		w.settled(2 * time.Minute)
		w.balanced(all...)
		w.apart(all...)
	})
}

func TestAllReplicasMustDivideTheSameWay(t *testing.T) {
	for want, change := range map[string]func(*shards.Options, *replica){
		`divides by "namespace", Options.ByNamespace is false`: func(o *shards.Options, r *replica) { o.ByNamespace, r.world.divided = false, false },
		`has "16" buckets, Options.Buckets is 32`:              func(o *shards.Options, _ *replica) { o.Buckets = 32 },
	} {
		testkit.InBubble(t, want, func(t *testing.T) {
			w := newDividedWorld(t, 10)
			a := w.start("a")
			w.settled(time.Second)
			b := w.start("b", change)
			time.Sleep(time.Second)
			b.reports(want)
			if b.set.Health().Synced {
				t.Error("b has joined")
			}
			w.balanced(a)
			b.mayFail = true
		})
	}
}

// A Lease that cannot be read is reported, and read again until it can be.
func TestRangesThatCannotBeReadDelayAReplica(t *testing.T) {
	inDividedWorld(t, 10, func(t *testing.T, w *world) {
		a := w.start("a")
		w.settled(time.Second)
		a.stop()
		good := w.ranges()
		write := func(text string) {
			w.edit("-ranges", func(l *coordinationv1.Lease) { l.Annotations[rangesAnnotation] = text })
		}
		write("nonsense")
		b := w.start("b")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if b.owned() != 0 {
			t.Errorf("b has %d buckets", b.owned())
		}
		if errs := b.took(); len(errs) == 0 || !strings.Contains(errs[0].Error(), "set test: the ranges of namespaces: the Lease test-ranges: it has no ranges") {
			t.Errorf("b reports %v", errs)
		}
		write(good)
		w.settled(10 * time.Second)
		w.balanced(b)
	})
}

// A replica that starts must not divide by ranges that were written into the Lease by hand: others work
// by the ranges that they know.
func TestChangedRangesAreWrittenAgain(t *testing.T) {
	inDividedWorld(t, 64, func(t *testing.T, w *world) {
		a, b := w.start("a", calls(time.Second, false)), w.start("b", calls(time.Second, false))
		w.settled(time.Minute)
		before := w.ranges()
		a.link.lag.Store(int64(time.Second)) // so that another replica can read what is wrong
		b.link.lag.Store(int64(time.Second))
		w.edit("-ranges", func(l *coordinationv1.Lease) {
			l.Annotations[rangesAnnotation] = `{"starts":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15],"weights":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}`
		})
		c := w.start("c", calls(time.Second, false))
		w.writeAll("2")
		w.settled(time.Minute)
		if w.ranges() != before {
			t.Errorf("the ranges are %s, and were %s", w.ranges(), before)
		}
		w.balanced(a, b, c)
		w.apart(a, b, c)
		if errs := slices.Concat(a.took(), b.took()); len(errs) == 0 || !strings.Contains(errs[0].Error(), "the Lease test-ranges was changed or deleted") {
			t.Errorf("reported are %v", errs)
		}
	})
}

// A replica tries again if it cannot create the Lease of the ranges at first.
func TestDeletedRangesAreWrittenAgainUntilThatSucceeds(t *testing.T) {
	inDividedWorld(t, 64, func(t *testing.T, w *world) {
		var refused atomic.Bool
		w.client.PrependReactor("create", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			lease := action.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease)
			return refused.Load() && lease.Name == "test-ranges", nil, errors.New("refused")
		})
		w.start("a")
		w.settled(time.Minute)
		before := w.ranges()
		refused.Store(true)
		w.deleteLeases("-ranges")
		time.Sleep(time.Minute)
		synctest.Wait()
		refused.Store(false)
		w.settled(2 * time.Second)
		if after := w.ranges(); after != before || after == "" {
			t.Errorf("the ranges are %q, and were %q", after, before)
		}
	})
}

// If no replica is left that knows the ranges, others are cut when the last session is over.
func TestRangesThatNoReplicaKnowsAreCutAgain(t *testing.T) {
	inDividedWorld(t, 64, func(t *testing.T, w *world) {
		a := w.start("a")
		w.settled(time.Minute)
		before := w.ranges()
		a.crash()
		w.deleteLeases("-ranges")
		w.skew()
		b := w.start("b")
		time.Sleep(10 * time.Second)
		if w.ranges() != "" {
			t.Error("ranges are cut while a replica may work")
		}
		w.settled(time.Minute)
		if after := w.ranges(); after == "" || after == before {
			t.Errorf("the ranges are %q, and were %q", after, before)
		}
		w.balanced(b)
	})
}

// A replica was cut off while all others were stopped, the Leases of the set deleted, and others started.
// When it is back, it divides as they do.
func TestAReturningReplicaDividesByTheRangesOfTheOthers(t *testing.T) {
	inDividedWorld(t, 64, func(t *testing.T, w *world) {
		a := w.start("a", calls(time.Second, false))
		w.settled(time.Minute)
		before := w.ranges()
		a.link.cut()
		time.Sleep(time.Minute)
		w.deleteLeases("")
		w.skew()
		b := w.start("b", calls(time.Second, false))
		w.settled(3 * time.Minute)
		if w.ranges() == before {
			t.Fatal("the ranges are the same")
		}
		a.link.heal()
		w.writeAll("2")
		w.settled(2 * time.Minute)
		w.balanced(a, b)
		w.apart(a, b)
	})
}

// The same with another number of buckets. The replica does not work until it is started again.
func TestAReturningReplicaDoesNotJoinASetWithMoreBuckets(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a := w.start("a", calls(time.Second, false))
		w.settled(time.Minute)
		a.link.cut()
		time.Sleep(time.Minute)
		w.deleteLeases("")
		b := w.start("b", calls(time.Second, false), func(opts *shards.Options, _ *replica) { opts.Buckets = 32 })
		w.settled(2 * time.Minute)
		a.link.heal()
		w.writeAll("2")
		w.settled(2 * time.Minute)
		if a.owned() != 0 || b.owned() != 32 {
			t.Errorf("a has %d buckets, b %d of 32", a.owned(), b.owned())
		}
		errs := a.took()
		if len(errs) == 0 || !strings.Contains(errs[len(errs)-1].Error(), `joining: the Lease test-`) {
			t.Errorf("a reports %v", errs)
		}
		if left := w.leases.Objects(); len(left) != 33 {
			t.Errorf("there are %d Leases", len(left))
		}
	})
}

// Of two replicas that start at the same time, before there is any Lease, no two work with different
// numbers of buckets.
func TestReplicasThatStartTogetherDoNotWorkWithDifferentNumbersOfBuckets(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a := w.start("a", calls(time.Second, false))
		b := w.start("b", calls(time.Second, false), func(opts *shards.Options, _ *replica) { opts.Buckets = 32 })
		time.Sleep(time.Minute)
		w.settled(0)
		if a.owned() > 0 && b.owned() > 0 {
			t.Errorf("a has %d of 16 buckets, b %d of 32", a.owned(), b.owned())
		}
		a.mayFail, b.mayFail = true, true
	})
}
