package shards_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

// during waits until the replica has a call under way, and returns its key.
func (w *world) during(r *replica) string {
	w.t.Helper()
	for range 100 {
		synctest.Wait()
		w.mu.Lock()
		for key, by := range w.calls {
			if by == r.name {
				w.mu.Unlock()
				return key
			}
		}
		w.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("%s makes no call", r.name)
	return ""
}

func calls(d time.Duration, deaf bool) func(*shards.Options, *replica) {
	return func(_ *shards.Options, r *replica) { r.slow = d; r.deaf.Store(deaf) }
}

func TestABucketMovesWhenItsCallsHaveReturned(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		testkit.InBubble(t, fmt.Sprintf("calls ignore their ctx: %v", deaf), func(t *testing.T) {
			const long = time.Minute // longer than DrainTimeout, and than a session without renewals
			w := newWorld(t, 64)
			a := w.start("a", calls(long, deaf), func(_ *shards.Options, r *replica) {
				r.quick = func(key string) bool { return sharding.Of(r.set).Bucket(key) != 10 } // b gets it
			})
			time.Sleep(time.Second)
			busy := w.during(a)
			b := w.start("b")
			time.Sleep(18 * time.Second) // less than DrainTimeout
			h := a.set.Health()
			if h.Draining == 0 || h.DrainingFor < 17*time.Second {
				t.Errorf("a drains %d buckets, for %v", h.Draining, h.DrainingFor)
			}
			if left := 16 - b.owned(); a.owned() != left || b.owned() == 0 {
				t.Errorf("a has %d buckets, b %d: buckets without a call should have moved", a.owned(), b.owned())
			}
			time.Sleep(4 * time.Second) // more than DrainTimeout
			if h := a.set.Health(); (h.Draining == 0) != !deaf {
				t.Errorf("a drains %d buckets for %v after DrainTimeout", h.Draining, h.DrainingFor)
			}
			if a.set.Health().Session == "" || b.set.Health().Replicas != 2 {
				t.Error("a has not renewed its session while it waited")
			}
			w.settled(10 * long)
			w.balanced(a, b)
			if len(w.traces[busy]) == 0 {
				t.Error("no call was made for", busy)
			}
			w.quiet(a, b)
		})
	}
}

func TestACutOffReplicaEndsItsCallsBeforeOthersBegin(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a, b := w.start("a", calls(time.Hour, false)), w.start("b")
		time.Sleep(2 * time.Second)
		key := w.during(a)
		a.link.cut()
		cut := time.Now()
		for a.set.Health().Session != "" {
			time.Sleep(100 * time.Millisecond)
		}
		// The last renewal was at most RenewEvery ago.
		if took := time.Since(cut); took < 8*time.Second || took > 13*time.Second+200*time.Millisecond {
			t.Errorf("the session ended after %v", took)
		}
		synctest.Wait()
		w.mu.Lock()
		if by, busy := w.calls[key]; busy {
			t.Errorf("the call of %s for %s has not returned", by, key)
		}
		w.mu.Unlock()
		for b.owned() < 16 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(cut); took > 15*time.Second+200*time.Millisecond {
			t.Errorf("b had all buckets after %v", took)
		}
		time.Sleep(time.Minute)
		a.link.heal()
		time.Sleep(2 * time.Minute)
		w.balanced(a, b)
		if n := a.set.Health().LostSessions; n != 1 {
			t.Errorf("a has lost %d sessions", n)
		}
		if errs := a.took(); !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, informer.ErrLeaseLost) }) {
			t.Errorf("a has reported %v", errs)
		}
	})
}

// This is the control of the tests that look for overlaps: calls that ignore the end of the session
// overlap with those of another replica. The token tells their effects apart.
func TestTokensTellCallsOfALostSessionApart(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a, b := w.start("a", calls(3*time.Minute, true)), w.start("b", calls(time.Second, false))
		time.Sleep(2 * time.Second)
		w.during(a)
		a.link.cut()
		time.Sleep(time.Minute)
		if h := a.set.Health(); h.LostCalls == 0 || h.Session != "" {
			t.Errorf("a has %d calls of its lost session, and the session %q", h.LostCalls, h.Session)
		}
		time.Sleep(5 * time.Minute)
		w.mu.Lock()
		if len(w.overlaps) == 0 || w.refused == 0 {
			t.Errorf("%d overlaps were seen, and %d effects refused", len(w.overlaps), w.refused)
		}
		w.overlaps = nil
		w.mu.Unlock()
		if h := a.set.Health(); h.LostCalls != 0 {
			t.Errorf("a has %d calls of its lost session", h.LostCalls)
		}
		a.link.heal()
		time.Sleep(time.Hour)
		w.balanced(a, b)
	})
}

// The Leases are deleted while no replica runs, such as to change the number of buckets.
func TestTokensRiseWhenTheLeasesWereDeleted(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		for _, name := range []string{"a", "b"} { // b gets higher tokens than a
			r := w.start(name)
			w.settled(10 * time.Second)
			r.stop()
		}
		w.deleteLeases("")
		w.writeAll("2")
		w.start("c")
		w.settled(10 * time.Second)
		w.mu.Lock()
		if w.refused > 0 {
			t.Errorf("%d effects are refused, because their tokens are lower than earlier ones", w.refused)
		}
		w.mu.Unlock()
	})
}

func TestDeletedLeasesAreMadeAgain(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a, b := w.start("a", calls(100*time.Millisecond, false)), w.start("b", calls(100*time.Millisecond, false))
		time.Sleep(10 * time.Second) // the sessions show which buckets they have
		w.deleteLeases("bucket")
		w.writeAll("2")
		c := w.start("c") // it has never seen the Leases
		w.settled(time.Minute)
		w.balanced(a, b, c)
		for value, part := range []string{"session", ""} {
			w.deleteLeases(part)
			w.writeAll(fmt.Sprint("more ", value))
			w.settled(time.Minute)
			w.balanced(a, b, c)
		}
	})
}

// The replica must not work until LeaseDuration is over, with a refused renewal each half a second.
func TestASessionWhoseLeaseIsDeletedEnds(t *testing.T) {
	inWorld(t, 20, func(t *testing.T, w *world) {
		a := w.start("a")
		w.settled(10 * time.Second)
		w.deleteLeases("session")
		w.settled(2 * time.Second)
		w.balanced(a)
		a.reports("the session is lost")
		a.reports(" was deleted")
	})
}

// A replica that starts learns from the session's Lease that a bucket has a holder whose own Lease is
// gone.
func TestABucketWhoseLeaseIsGoneStaysWithItsHolder(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a := w.start("a", calls(time.Minute, false))
		time.Sleep(10 * time.Second) // the session shows which buckets it has
		a.link.lag.Store(int64(time.Second))
		w.deleteLeases("bucket")
		b := w.start("b")
		time.Sleep(300 * time.Millisecond) // before a makes them again
		if n := b.owned(); n > 0 {
			t.Errorf("b has taken %d buckets of a", n)
		}
		w.settled(20 * time.Minute)
		w.balanced(a, b)
	})
}

// The next holder of a bucket may have been started after a delete, and handles it at once.
func TestABucketMovesWithItsDeletes(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a := w.start("a", calls(time.Hour, false), func(_ *shards.Options, r *replica) {
			r.quick = func(key string) bool { return sharding.Of(r.set).Bucket(key) != 10 } // b gets it
		})
		time.Sleep(10 * time.Second)
		busy := w.during(a)
		_, err := w.objects.Delete(types.NamespacedName{Namespace: "default", Name: busy})
		testkit.Must(t, err)
		time.Sleep(time.Second)
		b := w.start("b")
		for b.owned() < 8 {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		w.handled(busy)
	})
}

func TestACallThatContinuesAfterAPauseFindsItsCtxDone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		a := w.start("a")
		time.Sleep(time.Second)
		bucket := sharding.Of(a.set).Bucket("default/" + name(0))
		ctx, done, ok := sharding.Of(a.set).Enter(t.Context(), bucket)
		if !ok || ctx.Err() != nil {
			t.Fatal("the call cannot begin")
		}
		a.link.cut()
		child, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		time.Sleep(14 * time.Second)
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), informer.ErrLeaseLost) {
			t.Errorf("%v because of %v", ctx.Err(), context.Cause(ctx))
		}
		synctest.Wait()
		if !errors.Is(context.Cause(child), informer.ErrLeaseLost) {
			t.Errorf("a ctx that was made from it ends because of %v", context.Cause(child))
		}
		if b, token, ok := shards.Token(child); b != bucket || token < 1 || !ok {
			t.Errorf("the token is %d of bucket %d, %v", token, b, ok)
		}
		if _, _, ok := shards.Token(t.Context()); ok {
			t.Error("a ctx of no call has a token")
		}
		done()
		if _, _, ok := sharding.Of(a.set).Enter(t.Context(), bucket); ok || sharding.Of(a.set).Has(bucket) {
			t.Error("a call begins without a session")
		}
		for _, b := range []int{-1, 16, 1 << 30} {
			if _, _, ok := sharding.Of(a.set).Enter(t.Context(), b); ok || sharding.Of(a.set).Has(b) {
				t.Error("a call begins for bucket", b)
			}
		}
		a.crash()
	})
}

// The ctx of a call looks at the clock also if the call has a time limit.
func TestACallWithATimeLimitFindsItsCtxEnded(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		begun := make(chan context.Context, 1)
		a := w.start("a", func(_ *shards.Options, r *replica) {
			r.inCall = func(ctx context.Context) { begun <- ctx; time.Sleep(time.Minute) }
		})
		ctx := <-begun
		a.link.cut()
		for sharding.Of(a.set).Has(w.bucket(name(0))) {
			time.Sleep(time.Millisecond)
		}
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), informer.ErrLeaseLost) {
			t.Errorf("%v because of %v", ctx.Err(), context.Cause(ctx))
		}
		time.Sleep(time.Hour)
		a.crash()
	})
}

// A key whose bucket moves waits for its time in the replica that has the bucket.
func TestAKeyWaitsInOneReplica(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		daily := func(_ *shards.Options, r *replica) { r.again = 24 * time.Hour }
		waiting := func(r *replica) int { return r.group.Health()["objects"].(enqueue.Health).Waiting }
		a := w.start("a", daily)
		time.Sleep(10 * time.Second)
		if n := waiting(a); n != 64 {
			t.Errorf("%d keys wait in the only replica, want 64", n)
		}
		b := w.start("b", daily)
		w.settled(time.Minute)
		w.balanced(a, b)
		if inA, inB := waiting(a), waiting(b); inA+inB != 64 || inA == 0 || inB == 0 {
			t.Errorf("%d and %d keys wait, want 64 together", inA, inB)
		}
	})
}

// A replica that has died cannot report what it had seen. Another one that cannot see the objects at that
// moment must not work on them from an older state.
func TestAfterADeathCachesMustBeConnected(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a, b := w.start("a"), w.start("b")
		w.settled(10 * time.Second)
		w.balanced(a, b)
		b.link.cutObjects()
		w.writeAll("2")
		time.Sleep(time.Second) // a has reconciled its half
		a.crash()
		w.mu.Lock()
		before := w.count
		w.mu.Unlock()
		time.Sleep(time.Minute)
		w.mu.Lock()
		if w.count > before {
			t.Errorf("b has made %d calls from an old state", w.count-before)
		}
		w.mu.Unlock()
		if h := b.set.Health(); h.CatchingUp != 8 || h.Owned != 16 {
			t.Errorf("b has %d buckets, and catches up with %d", h.Owned, h.CatchingUp)
		}
		b.link.heal()
		w.settled(2 * time.Minute)
		w.balanced(b)
	})
}

// A replica that has taken a bucket of a dead one, and dies or leaves before it has caught up, passes
// on that it has not: the next one must catch up with the dead one, too.
func TestThePastStaysInTheLeaseUntilAReplicaHasCaughtUp(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a, b := w.start("a"), w.start("b")
		w.settled(10 * time.Second)
		b.link.cutObjects()
		w.writeAll("2")
		time.Sleep(6 * time.Second) // a has recorded what it has seen
		a.crash()
		time.Sleep(time.Minute)
		past := func(when, holder string, want int) {
			t.Helper()
			died := 0
			for _, lease := range w.leases.Objects() {
				id, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
				if lease.Annotations[annotationPrefix+"died"] != "" && id == holder && strings.Contains(lease.Annotations[annotationPrefix+"seen"], `"1128"`) {
					died++
				}
			}
			if died != want {
				t.Errorf("%s: %d Leases record that their last holder has died, and what it had seen, want %d", when, died, want)
			}
		}
		past("b catches up", "b", 8)
		b.stop()
		past("b has left", "", 8)
		c := w.start("c")
		w.settled(10 * time.Second)
		c.stop()
		past("c had caught up", "", 0)
	})
}
