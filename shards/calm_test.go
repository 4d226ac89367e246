package shards_test

import (
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/shards"
)

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
			w.objects.SetWatchList(informertest.WatchListRejected)
			a := w.start("a", selects)
			time.Sleep(time.Minute)
			w.objects.SlowList(90 * time.Second)
			b := w.start("b", selects)
			time.Sleep(2 * time.Hour)
			w.objects.SlowList(0)
			return []*replica{a, b}
		},
		"the objects cannot be watched, and a replica starts": func(w *world) []*replica {
			w.objects.Fail(informertest.VerbWatch, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "configmaps"}, "watch"), -1)
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
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 0)
				all := live(w)
				w.balanced(all...)
				for _, r := range all {
					if h := r.set.Health().Shards; r.about("have been behind for") > 0 || h.Taken > 40 {
						t.Errorf("%s: %+v, %v", r.name, h, r.took())
					}
				}
				for _, r := range all {
					r.stop()
				}
			})
		})
	}
}

// A replica that is behind, and loses its session, does not get buckets for a minute each time.
func TestANewSessionOfAReplicaThatIsBehindTakesNoBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 64)
		a, b := w.start("a"), w.start("b")
		time.Sleep(time.Minute)
		b.link.cutObjects()
		time.Sleep(5 * time.Minute)
		for range 3 {
			b.link.cut()
			time.Sleep(20 * time.Second)
			b.link.healLeases()
			time.Sleep(20 * time.Second)
			if h := b.set.Health().Shards; h.Owned > 0 || h.Session == "" || a.owned() != 16 {
				t.Errorf("the replica that is behind: %+v; the other has %d buckets", h, a.owned())
			}
			time.Sleep(5 * time.Minute)
		}
		a.stop()
		b.stop()
	})
}

// An old replica passes deletes on for a controller that it does not have.
func TestAHolderKeepsDeletesOfControllersThatItLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 64)
		old := w.start("old")
		time.Sleep(time.Minute)
		first := w.start("first", controls("objects", "added"))
		time.Sleep(time.Minute)
		n := 0
		for !old.set.Has(w.bucket(name(n))) {
			n++
		}
		if _, err := w.objects.Delete(w.key(n)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		first.stop() // it gives the delete to the holder
		time.Sleep(30 * time.Second)
		second := w.start("second", controls("objects", "added"))
		time.Sleep(time.Minute)
		old.stop()
		time.Sleep(time.Minute)
		w.mu.Lock()
		if got, called := w.extra["added"][name(n)]; !called || got != "" {
			t.Errorf("the delete of %s has not reached the controller: %q, %v", name(n), got, called)
		}
		w.mu.Unlock()
		second.stop()
	})
}

// A replica that is cut off from the Leases knows nothing of other replicas.
func TestAReplicaWithoutASessionShowsNoKeysThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 64)
		old, young := w.start("old"), w.start("young", controls("objects", "added"))
		time.Sleep(time.Minute)
		if h := young.set.Health().Shards; h.Unserved == 0 {
			t.Fatalf("%+v", h)
		}
		young.link.cut()
		time.Sleep(time.Hour)
		if h := young.set.Health(); h.Shards.Unserved > 0 || h.Shards.UnservedFor > 0 || h.SourceError == nil {
			t.Errorf("%+v, %+v", h, h.Shards)
		}
		young.link.heal()
		time.Sleep(time.Minute)
		young.stop()
		old.stop()
	})
}
