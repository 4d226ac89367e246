package shards_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

// A replica whose cache is behind gives its buckets to one whose cache is not, also those that are open.
func TestALaggingReplicaHasNoBuckets(t *testing.T) {
	for _, first := range []bool{false, true} {
		testkit.InBubble(t, fmt.Sprintf("the first: %v", first), func(t *testing.T) {
			w := newWorld(t, 64)
			a, b := w.start("a"), w.start("b")
			time.Sleep(time.Minute)
			w.balanced(a, b)
			late, other := b, a
			if first {
				late, other = a, b
			}
			late.link.cutObjects()
			w.writeAll("2")
			w.settled(3 * time.Minute)
			if h := late.set.Health(); h.Owned != 0 || h.Session == "" || h.CatchingUpFor < 2*time.Minute || other.owned() != 16 {
				t.Errorf("the replica that is behind: %+v; the other has %d buckets", h, other.owned())
			}
			if h := other.set.Health(); h.Replicas != 1 || h.CatchingUpFor != 0 {
				t.Errorf("the other replica: %+v", h)
			}
			if late.about("the caches of this replica have been behind for ") != 1 {
				t.Errorf("the replica that is behind reports %v", late.took())
			}
			time.Sleep(time.Hour)
			late.link.heal()
			w.settled(2 * time.Minute)
			w.balanced(a, b)
			if h := late.set.Health(); h.CatchingUpFor != 0 {
				t.Errorf("when it has caught up: %+v", h)
			}
		})
	}
}

// The only replica keeps buckets for which its cache is too old, until another one comes.
func TestABucketThatCannotCatchUpGoesToTheNextReplica(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a := w.start("a")
		time.Sleep(time.Minute)
		b := w.start("b")
		time.Sleep(time.Minute)
		b.link.cutObjects()
		w.writeAll("2")
		time.Sleep(10 * time.Second)
		a.stop()
		time.Sleep(time.Hour)
		if h := b.set.Health(); h.Owned != 16 || h.CatchingUp == 0 || h.CatchingUpFor < 59*time.Minute {
			t.Errorf("the only replica, which is behind: %+v", h)
		}
		c := w.start("c")
		w.settled(20 * time.Second)
		if h := b.set.Health(); h.Owned != 0 || c.owned() != 16 || h.CatchingUpFor < 59*time.Minute {
			t.Errorf("with another replica: %+v; that one has %d buckets", h, c.owned())
		}
		c.stop() // and b must have the buckets again, because there is no other replica
		time.Sleep(10 * time.Second)
		if h := b.set.Health(); h.Owned != 16 {
			t.Errorf("alone again: %+v", h)
		}
		b.link.heal()
		w.settled(2 * time.Minute)
	})
}

// When all replicas are behind, no bucket stays without an owner.
func TestReplicasThatAreAllBehindKeepTheirBuckets(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		all := []*replica{w.start("a"), w.start("b"), w.start("c")}
		time.Sleep(time.Minute)
		w.writeAll("2")
		time.Sleep(10 * time.Second)
		gone := w.start("d")
		time.Sleep(10 * time.Second)
		for _, r := range all {
			r.link.cutObjects()
		}
		w.writeAll("3")
		time.Sleep(10 * time.Second)
		gone.stop() // the versions that it has seen are lost
		for range 60 {
			time.Sleep(time.Minute)
			sum := 0
			for _, r := range all {
				sum += r.owned()
			}
			if h := all[0].set.Health(); sum < 16 && h.UnownedFor > 10*time.Second {
				t.Errorf("%d of 16 buckets have an owner, %+v", sum, h)
			}
		}
		for _, r := range all {
			if r.about("have been behind for") > 0 {
				t.Errorf("%s reports %v", r.name, r.took())
			}
		}
		for _, r := range all {
			r.link.heal()
		}
		w.settled(3 * time.Minute)
		taken := 0
		for _, r := range all {
			taken += r.set.Health().Taken
		}
		if taken > 100 {
			t.Errorf("%d buckets were taken: they went to and fro", taken)
		}
	})
}

// A replica reads from an API server that is behind, and that is not older than what others have seen.
func TestAReplicaWhoseServerIsBehindHasNoBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, frozen := newWorld(t, 64), newWorld(t, 64)
		w.writeAll("2")
		w.start("a")
		w.start("b")
		time.Sleep(time.Minute)
		c := w.start("c", func(_ *shards.Options, r *replica) { r.link.objects = frozen.objects })
		w.settled(5 * time.Minute)
		if h := c.set.Health(); h.Owned != 0 || h.CatchingUpFor < 4*time.Minute || c.about("restored from a backup") != 0 {
			t.Errorf("the replica whose server is behind: %+v, %v", h, c.took())
		}
	})
}

// A replica that cannot list the objects of its buckets finds nothing wrong without any. It takes buckets
// again, and keys wait for it meanwhile, so it does so more and more seldom.
func TestAReplicaThatCannotListItsPartIsAwayForLonger(t *testing.T) {
	inDividedWorld(t, 60, func(t *testing.T, w *world) {
		a, server := w.start("a", selects), &selecting{}
		time.Sleep(time.Minute)
		server.refusal = errors.New("internal error")
		b := w.start("b", server.serves)
		time.Sleep(10 * time.Hour)
		if h := b.set.Health(); h.Taken < 16 || h.Taken > 16*10 || a.owned() != 16 {
			t.Errorf("the replica that cannot list: %+v; the other has %d buckets", h, a.owned())
		}
	})
}

// After a restore, a version that no server has any more is not a measure.
func TestNoReplicaLagsBehindALostVersion(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		version := w.outdated()
		a, b := w.start("a"), w.start("b")
		time.Sleep(time.Minute)
		w.restore(version)
		w.settled(10 * time.Minute)
		w.balanced(a, b)
		for _, r := range []*replica{a, b} {
			if r.about("behind") != 0 {
				t.Errorf("%s reports %v", r.name, r.took())
			}
		}
	})
}

// Versions that the server does not have are not waited for: after a restore of the objects' server, and with
// Leases that a backup tool has brought from another cluster.
func TestVersionsThatNoServerHasAreNotWaitedFor(t *testing.T) {
	const missing = "it was restored from a backup, or the Leases are of another cluster"
	t.Run("the server is restored between two replicas", func(t *testing.T) {
		for _, crash := range []bool{false, true} {
			testkit.InBubble(t, fmt.Sprintf("the last has crashed: %v", crash), func(t *testing.T) {
				w := newWorld(t, 64)
				version := w.objects.ResourceVersion()
				for n := range 200 {
					w.write(n%64, fmt.Sprint(n))
				}
				a := w.start("a")
				w.settled(time.Minute)
				if crash {
					a.crash()
				} else {
					a.stop()
				}
				w.restore(version)
				b := w.start("b")
				w.settled(time.Minute)
				if n := b.about(missing); n != 1 {
					t.Errorf("it was reported %d times: %v", n, b.took())
				}
			})
		}
	})
	for what, strip := range map[string]bool{"the Leases are copies": false, "the Leases are copies, and do not show it": true} {
		testkit.InBubble(t, what, func(t *testing.T) {
			old := newWorld(t, 64)
			for n := range 200 {
				old.write(n%64, fmt.Sprint(n))
			}
			a := old.start("a")
			old.settled(time.Minute)
			a.stop()
			young := newWorld(t, 64)
			for _, lease := range old.leases.Objects() {
				lease = lease.DeepCopy()
				lease.ResourceVersion, lease.UID = "", "copy-"+lease.UID
				if strip {
					delete(lease.Annotations, annotationPrefix+"lease")
				}
				young.leases.Apply(lease)
			}
			b := young.start("b")
			time.Sleep(5 * time.Second)
			if h := b.set.Health(); h.Owned != 16 || (h.CatchingUp == 16) != strip {
				t.Errorf("after 5 s: %+v", h)
			}
			young.settled(20 * time.Second)
			if n := b.about(missing); (n == 1) != strip {
				t.Errorf("it was reported %d times: %v", n, b.took())
			}
		})
	}
}

// A copy of a Lease may claim that deletes are handled which have not happened yet.
func TestTheClaimsOfACopiedLeaseAreNotBelieved(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a := w.start("a", calls(time.Minute, false))
		time.Sleep(time.Second)
		w.start("b")
		time.Sleep(2 * time.Minute)
		n := a.first()
		w.remove(n)
		time.Sleep(time.Second)
		w.edit("-session-", func(l *coordinationv1.Lease) {
			if !strings.Contains(l.Annotations[annotationPrefix+"seen"], `"0.ConfigMap/":`) { // a reordered controller must have other names
				t.Errorf("the session has seen %s", l.Annotations[annotationPrefix+"seen"])
			}
			l.Annotations[annotationPrefix+"lease"] = "of another cluster"
			l.Annotations[annotationPrefix+"handled"] = `[{"buckets":"0-15","handled":{"objects":{"0.ConfigMap/":{"after":"1","to":"99999999"}}}}]`
		})
		time.Sleep(time.Second)
		a.crash()
		w.settled(5 * time.Minute)
		w.handled(name(n))
	})
}

// A replica that is not connected does not notice a restore, so it is not a measure for others.
func TestACutOffReplicaIsNotAMeasure(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		version := w.outdated()
		a, b := w.start("a"), w.start("b")
		time.Sleep(time.Minute)
		a.link.cutObjects()
		w.restore(version)
		w.settled(10 * time.Minute)
		if a.owned() != 0 || b.owned() != 16 || b.about("behind") > 0 {
			t.Errorf("the replica that is cut off has %d buckets, the other %d, and reports %v", a.owned(), b.owned(), b.took())
		}
		a.link.heal()
		w.settled(3 * time.Minute)
		w.balanced(a, b)
	})
}

// A replica that released a bucket before a restore has handled deletes up to a version that the server
// reaches again. That is not a reason to forget a later delete which the next holder has not reconciled.
func TestADeleteAfterARestoreIsNotTakenForAnEarlierOne(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		w.start("a")
		w.settled(time.Minute)
		version := w.outdated()
		w.settled(time.Minute)
		b := w.start("b") // a releases half of the buckets
		w.settled(time.Minute)
		w.restore(version)
		w.settled(10 * time.Minute)
		for n := range 64 {
			w.remove(n)
		}
		b.crash()
		w.settled(time.Minute)
		for n := range 64 {
			w.handled(name(n))
		}
	})
}

// outdated returns the version of a backup of the objects, each of which is written several times afterwards.
func (w *world) outdated() string {
	version := w.objects.ResourceVersion()
	for n := range 200 {
		w.write(n%64, fmt.Sprint(n))
	}
	return version
}

// restore has the objects' server begin at a version again. It is away for a second.
func (w *world) restore(version string) {
	w.t.Helper()
	w.objects.SetFaults(informertest.Faults{Down: true})
	testkit.Must(w.t, w.objects.Restore(version))
	time.Sleep(time.Second)
	w.objects.SetFaults(informertest.Faults{})
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.read)
	w.unsure = time.Now().Add(2 * time.Minute)
}

// No replica leaves its buckets because of what happens every day.
func TestReplicasAreNotTakenForBehind(t *testing.T) {
	for what, live := range map[string]func(w *world) []*replica{
		"sessions are renewed every 10 minutes": func(w *world) []*replica {
			seldom := func(o *shards.Options, _ *replica) { o.LeaseDuration, o.RenewEvery = time.Hour, 10*time.Minute }
			a := w.start("a", seldom)
			time.Sleep(3 * time.Minute)
			b := w.start("b", seldom)
			for n := range 60 {
				time.Sleep(time.Minute)
				w.write(n, "2")
			}
			return []*replica{a, b}
		},
		"lists of divided caches take longer than a minute": func(w *world) []*replica {
			w.divided = true
			w.objects.SetFaults(informertest.Faults{RejectWatchList: true})
			a := w.start("a", selects)
			time.Sleep(time.Minute)
			w.objects.SetFaults(informertest.Faults{ListDelay: 90 * time.Second, RejectWatchList: true})
			b := w.start("b", selects)
			time.Sleep(2 * time.Hour)
			w.objects.SetFaults(informertest.Faults{RejectWatchList: true})
			return []*replica{a, b}
		},
		"the objects cannot be watched, and a replica starts": func(w *world) []*replica {
			w.objects.Fail("watch", apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "configmaps"}, "watch"), -1)
			all := []*replica{w.start("a"), w.start("b")}
			time.Sleep(5 * time.Minute)
			all = append(all, w.start("c"))
			time.Sleep(time.Minute)
			return all
		},
		"all are cut off from the objects, and one begins a new session": func(w *world) []*replica {
			a, b := w.start("a"), w.start("b")
			time.Sleep(time.Minute)
			a.link.cutObjects()
			b.link.cutObjects()
			time.Sleep(5 * time.Minute)
			b.link.cut()
			time.Sleep(20 * time.Second)
			b.link.healLeases()
			time.Sleep(time.Minute)
			return []*replica{a, b}
		},
	} {
		testkit.InBubble(t, what, func(t *testing.T) {
			w := newWorld(t, 0)
			all := live(w)
			w.balanced(all...)
			for _, r := range all {
				if h := r.set.Health(); r.about("have been behind for") > 0 || h.Taken > 40 {
					t.Errorf("%s: %+v, %v", r.name, h, r.took())
				}
			}
		})
	}
}

// A replica that is behind, and loses its session, does not get buckets for a minute each time.
func TestANewSessionOfALaggingReplicaTakesNoBuckets(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a, b := w.start("a"), w.start("b")
		time.Sleep(time.Minute)
		b.link.cutObjects()
		time.Sleep(5 * time.Minute)
		for range 3 {
			b.link.cut()
			time.Sleep(20 * time.Second)
			b.link.healLeases()
			time.Sleep(20 * time.Second)
			if h := b.set.Health(); h.Owned > 0 || h.Session == "" || a.owned() != 16 {
				t.Errorf("the replica that is behind: %+v; the other has %d buckets", h, a.owned())
			}
			time.Sleep(5 * time.Minute)
		}
	})
}
