package shards_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

// oneBucket has the set of a replica have one bucket. Each call takes a time.
func oneBucket(call time.Duration) func(*shards.Options, *replica) {
	return func(opts *shards.Options, r *replica) { opts.Buckets, r.slow = 1, call }
}

// long returns the key of an object with a long name, so that the keys of 1,500 deletes do not fit into a
// Lease.
func long(n int) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: fmt.Sprint(strings.Repeat("x", 230), "-", n)}
}

const many = 1500

func (w *world) writeMany() {
	for n := range many {
		w.objects.Apply(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: long(n).Namespace, Name: long(n).Name}})
	}
}

// deleteMany deletes them.
func (w *world) deleteMany() {
	w.t.Helper()
	for n := range many {
		_, err := w.objects.Delete(long(n))
		testkit.Must(w.t, err)
	}
}

// A replica that leaves passes on all deletes that it has not handled, also if they do not fit into a Lease at
// once.
func TestAReplicaThatLeavesPassesOnMoreDeletesThanFitIntoALease(t *testing.T) {
	inWorld(t, 0, func(t *testing.T, w *world) {
		w.writeMany()
		a := w.start("a", oneBucket(0))
		w.settled(time.Minute)
		a.slow = time.Hour
		w.deleteMany()
		time.Sleep(time.Second)
		w.start("b", oneBucket(time.Millisecond)) // it does not get the deletes
		time.Sleep(time.Minute)
		a.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.mu.Lock()
		if len(w.deleted) != many {
			t.Errorf("%d of %d deletes are reconciled", len(w.deleted), many)
		}
		w.mu.Unlock()
		w.quiet(a)
	})
}

// If there is no room for them, or the API server refuses them, the replica leaves after LeaseDuration, and reports how many it has dropped.
func TestAReplicaLeavesAlthoughItsDeletesDoNotFitIntoALease(t *testing.T) {
	for name, refused := range map[string]bool{"no room": false, "refused": true} {
		testkit.InBubble(t, name, func(t *testing.T) {
			w := newWorld(t, 0)
			w.writeMany()
			a := w.start("a", oneBucket(0))
			w.settled(time.Minute)
			a.slow = time.Hour
			b := w.start("b", oneBucket(0)) // it has no bucket, and gets the deletes
			testkit.SleepBubble(time.Minute)
			begun := time.Now()
			w.client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
				lease := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
				return refused && time.Since(begun) < time.Minute && !strings.Contains(lease.Name, "-session-"), nil, errors.New("forbidden")
			})
			w.deleteMany()
			testkit.SleepBubble(time.Second)
			b.stop()
			if took := time.Since(begun); took < 10*time.Second || took > 20*time.Second {
				t.Errorf("b leaves after %v", took)
			}
			errs := b.took()
			if len(errs) == 0 || !errors.Is(errs[len(errs)-1], shards.ErrBucketDeletesDropped) || !strings.Contains(errs[len(errs)-1].Error(), " keys") {
				t.Errorf("b reports %v", errs)
			}
			a.crash()
		})
	}
}

// An old replica passes deletes on for a controller that it does not have.
func TestAHolderKeepsDeletesOfControllersThatItLacks(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		old := w.start("old")
		time.Sleep(time.Minute)
		first := w.start("first", controls("objects", "added"))
		time.Sleep(time.Minute)
		n := old.first()
		w.remove(n)
		time.Sleep(30 * time.Second)
		first.stop() // it gives the delete to the holder
		time.Sleep(30 * time.Second)
		w.start("second", controls("objects", "added"))
		time.Sleep(time.Minute)
		old.stop()
		time.Sleep(time.Minute)
		w.mu.Lock()
		if got, called := w.extra["added"][name(n)]; !called || got != "" {
			t.Errorf("the delete of %s has not reached the controller: %q, %v", name(n), got, called)
		}
		w.mu.Unlock()
	})
}

// If there is no room for the versions that the replica has seen, the next holder relies on the time since the last call.
func TestABucketIsReleasedLaterIfItsLeaseHasNoRoomForVersions(t *testing.T) {
	inWorld(t, 20, func(t *testing.T, w *world) {
		a, b := w.start("a", oneBucket(0)), w.start("b", oneBucket(0))
		w.settled(10 * time.Second)
		if b.owned() == 1 {
			a, b = b, a
		}
		w.edit("-bucket-", func(l *coordinationv1.Lease) { // those of a controller that neither has
			l.Annotations[annotationPrefix+"deletes"] = `{"other":["` + strings.Repeat("x", 255<<10) + `"]}`
		})
		w.settled(time.Second)
		begun := time.Now()
		a.stop()
		if took := time.Since(begun); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("with a Margin of 2 s, the replica leaves after %v", took)
		}
		w.writeAll("2")
		w.settled(5 * time.Second)
		w.quiet(a, b)
		if b.owned() != 1 {
			t.Error("the bucket has no replica")
		}
	})
}
