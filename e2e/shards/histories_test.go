package shards_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

func TestHistories(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Int64N(1_000_000) + 1
	}
	n, length := *histories, 7
	if testing.Short() {
		n, length = min(n, 1), 3
	}
	var graceful, failover []time.Duration
	var overlaps, excused, refused, stale, calls int
	for n := range n {
		seed := first + int64(n)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := playHistory(t, seed, length)
			v := w.verdict
			calls, overlaps, excused, refused, stale = calls+v.calls, overlaps+v.overlaps+v.early, excused+v.excused, refused+v.refused+v.late, stale+w.stale
			graceful, failover = append(graceful, w.owners.graceful...), append(failover, w.owners.failover...)
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d histories, %d calls; overlaps: %d, and %d excused; %d refused; %d stale; handovers: %s; failovers: %s",
		n, calls, overlaps, excused, refused, stale, percentiles(graceful), percentiles(failover))
}

// playHistory plays steps in random order. In every second history, calls can go on when their
// ctx is done. In half of them, each replica caches only the objects of its own namespaces.
func playHistory(t *testing.T, seed int64, length int) *world {
	ticks.Store(0)
	w := newWorld(t, seed)
	needs := map[need]bool{nothing: true, rough: seed%2 == 1, divided: seed/2%2 == 1}
	w.common.Reads, w.common.Divided = w.random.IntN(2) == 0, needs[divided]
	var plan []step
	for _, n := range w.random.Perm(len(steps)) {
		s := steps[n]
		switch {
		case *onlyStep != "" && s.name != *onlyStep:
		case !needs[s.needs]:
		case s.needs != nothing: // these come first, so that they are played
			plan = slices.Insert(plan, 0, s)
		default:
			plan = append(plan, s)
		}
	}
	if *onlyStep != "" {
		plan = slices.Repeat(plan, length)
	}
	if len(plan) == 0 {
		t.Fatalf("a history with seed %d has no step %q", seed, *onlyStep)
	}
	plan = plan[:min(length, len(plan))]
	w.random.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	var names []string
	for _, s := range plan {
		names = append(names, s.name)
	}
	t.Logf("seed %d (-shards-seed %d -shards-histories 1), rough %v, divided %v, gadgets only read %v: %q", seed, seed, needs[rough], w.common.Divided, w.common.Reads, names)

	if w.common.Divided {
		w.serveBy([]serving{served, ignored, either}[w.random.IntN(3)])
	}
	for range fewest + w.random.IntN(most-fewest) {
		w.start()
	}
	w.settle()
	for _, s := range plan {
		w.note("STEP %s", s.name)
		s.play(w)
		if w.random.IntN(3) > 0 {
			w.settle()
		} else {
			stage.Pass(w.ctx, w.upTo(time.Second))
		}
	}
	w.finish(needs[rough])
	return w
}

// finish stops writing, waits until everything is reconciled, and looks at what was recorded.
func (w *world) finish(rough bool) {
	w.Helper()
	w.settle()
	w.stop()
	w.writing.Wait()
	stopped := time.Now()
	deaths, unknown := 0, 0 // of an unknown delete, no living replica may know
	var missed []string
	w.awaitAlive("not all was reconciled", func() bool {
		missed, deaths, unknown = nil, 0, 0
		for kind, tr := range w.truths {
			if kind == gadgets && w.common.Reads {
				continue
			}
			m, d, u := tr.missed(w.recorder, kind, w.mayMiss)
			missed, deaths, unknown = append(missed, m...), deaths+d, unknown+u
		}
		if time.Since(stopped) > stage.Patience/2 && len(missed) > 0 {
			w.Fatalf("%d were not reconciled: %q", len(missed), missed[:min(5, len(missed))])
		}
		return len(missed) == 0
	})
	settled := time.Since(stopped)
	if w.common.Divided {
		w.apart()
	}
	for len(w.able()) > 0 {
		w.leave(w.any())
	}
	v := w.recorder.verdict(w.owners.failedOver)
	stale, afterFailover := w.recorder.stale(w.changes(), w.owners.failedOver)
	w.verdict, w.stale = v, len(stale)+len(afterFailover)
	w.judge(v, stale, afterFailover, rough)
	for kind, tr := range w.truths {
		if blind := tr.blind(w.recorder, kind); len(blind) > 0 {
			w.Errorf("%d calls have found nothing where an object was: %q", len(blind), blind[:min(5, len(blind))])
		}
	}
	w.front.judge(w.T, w.common.Divided)
	o := w.owners
	o.mu.Lock()
	defer o.mu.Unlock()
	w.Logf("%v; %d replicas; %d writes, %d deletes, %d of them unknown; all reconciled %v after the last write\n%v\nstale: %d after handovers, %d after failovers\n"+
		"graceful: %s; failover: %s; longest unowned %v; the API server was slow for %v; %d writes of Leases, %d with a wrong time",
		time.Since(w.begun).Round(time.Second), w.started, ticks.Load(), deaths, unknown, settled.Round(time.Millisecond), v, len(stale), len(afterFailover),
		percentiles(o.graceful), percentiles(o.failover), o.worst.Round(time.Millisecond), o.slow.Round(time.Millisecond), o.writes, o.skewed)
}

// changes returns the changes that a call for a key of each bucket can have read: all, or those in the
// same bucket if each replica caches only its own objects.
func (w *world) changes() (changes [buckets][kinds][]uint64) {
	of := map[string]int{} // the bucket of each namespace
	if w.common.Divided {
		of = w.recorder.spaces()
	}
	for bucket := range buckets {
		for kind, tr := range w.truths {
			changes[bucket][kind] = tr.versions(func(name string) bool {
				b, known := of[spaceOf(name)]
				return !known || b == bucket
			})
		}
	}
	return changes
}

// mayMiss reports whether no living replica may know of a delete: all that did have been
// killed. Replicas that divide their memory know only of their own objects, and one that had this
// one may have left, or lost its session, or the first one may not have listed yet.
func (w *world) mayMiss(kind int, d death) bool {
	if !w.common.Divided {
		return w.recorder.allCrashed(kind, d)
	}
	bucket, known := w.recorder.spaces()[spaceOf(d.name)]
	return !known || w.owners.unheld(bucket, d.known.Add(-lease)) || w.owners.changedHands(bucket, d.known.Add(-unsure), d.known.Add(unsure))
}

// unsure is how long before or after a delete the end of a replica or of a session matters to it.
const unsure = 5 * lease

// apart waits until each object is in the caches of exactly one replica.
func (w *world) apart() {
	w.Helper()
	ok := w.recorder.until(func() bool {
		var have [kinds]int
		for name := range w.replicas {
			for kind, n := range w.recorder.health[name].Objects {
				have[kind] += n
			}
		}
		for kind, tr := range w.truths {
			if have[kind] != tr.count() {
				return false
			}
		}
		return true
	})
	if !ok {
		w.Error("the caches of all replicas together do not have each object once")
	}
}

// judge fails the test if a promise was broken.
func (w *world) judge(v verdict, stale, afterFailover []string, rough bool) {
	w.Helper()
	if v.overlaps+v.early > 0 {
		w.Errorf("%d calls of one key at once, %d of two holders of a bucket: %q", v.overlaps, v.early, v.blame)
	}
	if v.alive > 0 {
		w.Errorf("%d of %d calls that were resumed had a live ctx", v.alive, v.resumed)
	}
	if v.resumed < w.suspended {
		w.Errorf("%d calls were resumed, although a process was stopped during a call %d times", v.resumed, w.suspended)
	}
	if !rough && v.pauses == 0 && v.excused+v.refused+v.late > 0 {
		w.Errorf("%d overlaps, %d effects of an earlier holder, and %d of its calls have no excuse", v.excused, v.refused, v.late)
	}
	if all := slices.Concat(stale, afterFailover); len(all) > 0 {
		w.Errorf("%d calls have seen less than a call before: %q", len(all), all[:min(5, len(all))])
	}
	w.owners.mu.Lock()
	defer w.owners.mu.Unlock()
	if faults := w.owners.faults; len(faults) > 0 {
		w.Errorf("%d faults of the Leases: %q", len(faults), faults[:min(5, len(faults))])
	}
}

// percentiles describes durations.
func percentiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	all = slices.SortedFunc(slices.Values(all), cmp.Compare)
	at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100].Round(time.Millisecond) }
	return fmt.Sprintf("%d, p50 %v, p99 %v", len(all), at(50), at(99))
}
