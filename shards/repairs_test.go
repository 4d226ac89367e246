package shards_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/internal/testkit"
)

const annotationPrefix = "shards.customcacheinformer.github.io/"

// edits are changes that a person may make of a Lease.
var edits = map[string]func(*coordinationv1.Lease){
	"the label is removed":      func(l *coordinationv1.Lease) { delete(l.Labels, annotationPrefix+"set") },
	"another set":               func(l *coordinationv1.Lease) { l.Labels[annotationPrefix+"set"] = "other" },
	"no annotations":            func(l *coordinationv1.Lease) { l.Annotations = nil },
	"another number of buckets": func(l *coordinationv1.Lease) { l.Annotations[annotationPrefix+"buckets"] = "7" },
	"no holder":                 func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil },
	"an unknown holder":         func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("somebody") },
	"no spec":                   func(l *coordinationv1.Lease) { l.Spec = coordinationv1.LeaseSpec{} },
	"a duration of a second":    func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(1)) },
	"a duration of an hour":     func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(3600)) },
	"a lower token":             func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = new(int32(1)) },
	"another renewal":           func(l *coordinationv1.Lease) { l.Spec.RenewTime = new(metav1.NewMicroTime(time.Unix(0, 0))) },
	"it was ended":              func(l *coordinationv1.Lease) { l.Annotations[annotationPrefix+"ended"] = "true" },
	"it is idle":                func(l *coordinationv1.Lease) { l.Annotations[annotationPrefix+"idle"] = "true" },
	"it has all buckets":        func(l *coordinationv1.Lease) { l.Annotations[annotationPrefix+"holds"] = "0-15" },
	"nonsense in all annotations": func(l *coordinationv1.Lease) {
		for _, name := range []string{"holds", "seen", "handled", "deletes", "died", "buckets", "by", "ranges"} {
			l.Annotations[annotationPrefix+name] = "{nonsense"
		}
	},
}

func (w *world) edit(part string, change func(*coordinationv1.Lease)) {
	w.t.Helper()
	leases, edited := w.api, 0
	for _, lease := range w.leases.Objects() {
		if !strings.Contains(lease.Name, part) {
			continue
		}
		for {
			fresh, err := leases.Get(w.t.Context(), lease.Name, metav1.GetOptions{})
			testkit.Must(w.t, err)
			change(fresh)
			if _, err := leases.Update(w.t.Context(), fresh, metav1.UpdateOptions{}); err == nil {
				edited++
				break
			}
		}
	}
	if edited == 0 {
		w.t.Fatalf("no Lease has a name with %q", part)
	}
}

// A replica mends a Lease that was changed, or begins a new session. Then the set works again.
func TestChangedLeasesAreMended(t *testing.T) {
	for _, part := range []string{"-session-", "-bucket-"} {
		for _, what := range slices.Sorted(maps.Keys(edits)) {
			for _, divided := range []bool{false, true} {
				testkit.InBubble(t, fmt.Sprint(part, what, divided), func(t *testing.T) {
					w := newWorld(t, 0)
					w.divided = divided
					w.writeAll("1")
					a, b := w.start("a", calls(100*time.Millisecond, false)), w.start("b", calls(100*time.Millisecond, false))
					w.settled(20 * time.Second)
					w.balanced(a, b)
					w.edit(part, edits[what])
					w.settled(90 * time.Second)
					w.balanced(a, b)
					w.writeAll("2")
					c := w.start("c", calls(100*time.Millisecond, false))
					w.settled(time.Minute)
					w.balanced(a, b, c)
					sums := func() (writes int64, reports int) {
						for _, r := range []*replica{a, b, c} {
							writes, reports = writes+r.link.writes.Load(), reports+len(r.took())
						}
						return writes, reports
					}
					writes, reports := sums()
					w.settled(time.Minute)
					if wrote, reported := sums(); wrote > writes+40 || reported > reports {
						t.Errorf("in a minute the replicas make %d writes, and report %d errors: %v", wrote-writes, reported-reports, a.took())
					}
					for _, r := range []*replica{a, b, c} {
						r.stop()
					}
					time.Sleep(time.Minute)
					if left := w.leases.Objects(); len(left) > 17 {
						t.Errorf("%d Leases are left", len(left))
					}
				})
			}
		}
	}
}

// A replica does not wait for its next renewal to learn that its session is over.
func TestAnEndedSessionEndsItsCallsAtOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		a := w.start("a")
		w.settled(time.Second)
		ctx, done, ok := sharding.Of(a.set).Enter(t.Context(), w.bucket(name(0)))
		if !ok {
			t.Fatal("the call cannot begin")
		}
		defer done()
		w.edit("-session-", edits["it was ended"])
		time.Sleep(10 * time.Millisecond)
		if !errors.Is(context.Cause(ctx), informer.ErrLeaseLost) {
			t.Errorf("the call is not canceled: %v", context.Cause(ctx))
		}
		w.settled(time.Minute)
		w.balanced(a)
	})
}

// etcd is restored from a backup: the versions of the Leases go back, and so do the Leases.
func TestLeasesOfARestoredServerAreBelieved(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		a, b := w.start("a"), w.start("b")
		w.settled(10 * time.Second)
		backup := w.leases.ResourceVersion()
		c := w.start("c") // the backup does not know it
		w.settled(30 * time.Minute)
		w.leases.SetFaults(informertest.Faults{Down: true})
		testkit.Must(t, w.leases.Restore(backup))
		time.Sleep(10 * time.Second) // a replica of which no request fails notices a restore at its next list only
		w.leases.SetFaults(informertest.Faults{})
		w.settled(2 * time.Minute)
		w.balanced(a, b, c)
		d := w.start("d")
		w.writeAll("2")
		w.settled(time.Minute)
		w.balanced(a, b, c, d)
		a.crash()
		w.settled(time.Minute)
		w.balanced(b, c, d)
		b.stop()
		c.stop()
		w.settled(time.Minute)
		w.balanced(d)
	})
}

// The token in a Lease may have been changed by hand.
func TestATokenDoesNotBecomeNegative(t *testing.T) {
	inWorld(t, 100, func(t *testing.T, w *world) {
		a := w.start("a")
		w.settled(time.Second)
		a.stop()
		w.edit("bucket-3", func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = ptr.To[int32](math.MaxInt32) })
		b := w.start("b")
		testkit.SleepBubble(time.Minute)
		errs := b.took()
		if n := len(errs); n == 0 || n > 15 || !strings.Contains(errs[0].Error(), "bucket 3 has the last fencing token that there is, 2147483647: stop all replicas and delete the Lease test-bucket-3") {
			t.Errorf("%d errors: %v", n, errs)
		}
		for _, lease := range w.leases.Objects() {
			if n := lease.Spec.LeaseTransitions; n != nil && *n < 0 {
				t.Errorf("%s has the token %d", lease.Name, *n)
			}
		}
		if b.owned() != 15 {
			t.Errorf("b has %d buckets", b.owned())
		}
		b.stop()
		w.deleteLeases("bucket-3")
		c := w.start("c")
		w.settled(10 * time.Second)
		w.balanced(c)
		w.quiet(c)
	})
}
