package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

func TestChaos(t *testing.T) {
	if *chaosFor == 0 {
		t.Skip("set -chaos to the time for which to play faults; see make chaos")
	}
	length := *chaosFor
	if testing.Short() {
		length = min(length, 10*time.Second)
	}
	begin, from := time.Now(), *seed
	if from == 0 {
		from = begin.UnixNano()
	}
	t.Logf("-seed %d", from)
	// The order has numbers of its own: how many numbers a fault uses depends on time.
	random, order := rand.New(rand.NewPCG(uint64(from), 0)), rand.New(rand.NewPCG(uint64(from), 1))
	w := newWorld(t)
	w.followAll()
	begin = time.Now()
	all := tally{}
	all.add(w.play(fault{"none: the start", func(*episode) {}, nil}, random))
	var bag []fault
	for ; time.Since(begin) < length && !t.Failed(); bag = bag[1:] {
		if len(bag) == 0 {
			if bag = pick(order); len(bag) == 0 {
				t.Fatalf("there is no fault %q", *onlyFault)
			}
		}
		all.add(w.play(bag[0], random))
	}
	length = time.Since(begin).Round(time.Second)
	publish(t, fmt.Sprintf("chaos for %v, seed %d, %d writes, %d informers", length, from, w.written.Load(), len(w.followers)), all.String())
}

// episode is one fault while it is played.
type episode struct {
	*world
	fault
	random *rand.Rand

	mu      sync.Mutex // protects the rest
	trouble map[string]bool
}

// outcome is what one fault has led to.
type outcome struct {
	fault                   string
	played, converged, well time.Duration
	figures
}

// figures are those of all followers together.
type figures struct{ lists, watches, reports, returned int64 }

// add adds other figures, or subtracts them.
func (f *figures) add(other figures, sign int64) {
	f.lists += sign * other.lists
	f.watches += sign * other.watches
	f.reports += sign * other.reports
	f.returned += sign * other.returned
}

// sum adds up the figures of all followers.
func (w *world) sum() (sum figures) {
	for _, f := range w.followers {
		c := f.counts()
		sum.add(figures{c.lists.Load(), c.watches.Load(), c.reported.Load(), c.returned.Load()}, 1)
	}
	return sum
}

// play plays a fault, waits until every follower is well again, and returns the figures.
func (w *world) play(f fault, random *rand.Rand) outcome {
	w.Logf("%v: %s", time.Now().Format(time.TimeOnly), f.name)
	e := &episode{world: w, fault: f, random: random, trouble: map[string]bool{}}
	before, begin, reported := w.sum(), time.Now(), map[string]int64{}
	for _, f := range w.followers {
		reported[f.about().name] = f.counts().reported.Load()
	}
	e.watching(func() { f.play(e) })
	healed := time.Now()
	o := outcome{fault: f.name, played: healed.Sub(begin)}
	e.converge(&o)
	o.figures = w.sum()
	o.add(before, -1)
	for _, f := range w.followers {
		name := f.about().name
		if e.noticed != nil && e.noticed(f.about()) && f.counts().reported.Load() == reported[name] {
			w.Errorf("%s: %s has reported nothing", e.name, name)
		}
		if err := f.problem(); err != nil {
			w.Errorf("%s: %s: %v", e.name, name, err)
		}
	}
	w.Logf("    lasted %v, converged after %v, well after %v", o.played.Round(time.Millisecond), o.converged.Round(time.Millisecond), o.well.Round(time.Millisecond))
	return o
}

// watching records, while do runs, the followers whose Health reports that the source fails.
func (e *episode) watching(do func()) {
	ctx, stop := context.WithCancel(e.ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() {
		for alive := true; alive; alive = stage.Pass(ctx, 5*time.Millisecond) {
			for _, f := range e.followers {
				if f.health().SourceError != nil {
					e.mu.Lock()
					e.trouble[f.about().name] = true
					e.mu.Unlock()
				}
			}
		}
	})
	do()
}

// awaitNoticed waits until every follower that must notice the fault has noticed it.
func (e *episode) awaitNoticed() {
	e.Await(e.name+": some informers do not notice", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return !slices.ContainsFunc(e.followers, func(f follower) bool {
			return e.noticed(f.about()) && !e.trouble[f.about().name]
		})
	})
}

// converge waits until every follower has the state of the server and nothing fails any more.
func (e *episode) converge(o *outcome) {
	healed := time.Now()
	e.pause.Lock()
	defer e.pause.Unlock()
	e.awaitEqual()
	o.converged = time.Since(healed)
	left := map[follower]func() string{}
	for _, f := range e.followers {
		left[f] = func() string { return unwell(f) }
	}
	e.awaitAll(left)
	o.well = time.Since(healed)
}

// awaitEqual waits until every follower has the state of the server. The caller must have
// stopped all writing.
func (e *episode) awaitEqual() {
	left := map[follower]func() string{}
	for _, f := range e.followers {
		want, uids := e.state(f)
		left[f] = func() string { return f.differs(want, uids) }
	}
	e.awaitAll(left)
}

// unwell returns the problem that Health reports; "" if there is none.
func unwell(f follower) string {
	switch h := f.health(); {
	case h.SourceError != nil:
		return fmt.Sprintf("Health: source: %v (%d in a row)", h.SourceError, h.SourceFailures)
	case h.StoreError != nil:
		return fmt.Sprintf("Health: store: %v", h.StoreError)
	case !h.Watching:
		return "Health: no watch is open"
	case h.Ready() != nil:
		return h.Ready().Error()
	}
	return ""
}

// remarkable is the time after which a wait logs which followers were late.
const remarkable = 10 * time.Second

// awaitAll waits until every function returns "".
func (e *episode) awaitAll(left map[follower]func() string) {
	begin := time.Now()
	var late []string
	defer func() {
		if took := time.Since(begin); took > remarkable {
			e.Logf("    late, after %v:\n%s", took.Round(time.Millisecond), strings.Join(late, "\n"))
		}
	}()
	for ; len(left) > 0; stage.Pass(e.ctx, 10*time.Millisecond) {
		var now []string
		for f, says := range left {
			if wrong := says(); wrong == "" {
				delete(left, f)
			} else {
				now = append(now, f.about().name+": "+wrong)
			}
		}
		if len(now) > 0 {
			late = now
		}
		if len(now) > 0 && time.Since(begin) > stage.Patience {
			e.Errorf("%s: not well after %v:\n%s", e.name, stage.Patience, strings.Join(now, "\n"))
			return
		}
	}
}
