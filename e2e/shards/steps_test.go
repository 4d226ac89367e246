package shards_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

// step is a part of a history.
type step struct {
	name  string
	needs need
	play  func(w *world)
}

// need is in which histories a step is played.
type need uint8

const (
	nothing need = iota
	rough        // calls may go on when their ctx is done
	divided      // each replica caches only the objects of its own namespaces
)

// The numbers of replicas of a history.
const (
	fewest = 2
	most   = 4
)

var steps = []step{
	{"scale up", nothing, (*world).scaleUp},
	{"scale down", nothing, (*world).scaleDown},
	{"rolling restart", nothing, func(w *world) {
		for _, name := range w.able() {
			w.leave(w.replicas[name])
			w.join()
		}
	}},
	{"kill", nothing, (*world).lose},
	{"cut off", nothing, func(w *world) {
		r := w.any()
		w.cut(r)
		w.meanwhile()
		w.heal(r)
	}},
	{"silence", nothing, func(w *world) {
		r := w.any()
		w.silence(r)
		w.meanwhile()
		w.endSilence(r)
	}},
	{"API server restarted", nothing, func(w *world) { w.restart(w.upTo(2 * lease)) }},
	{"skewed clock", nothing, func(w *world) {
		by := 30 * time.Second
		if w.random.IntN(4) == 0 {
			by = -by
		}
		r := w.any()
		w.note("%s: its clock is wrong by %v", r.name, by)
		_, err := fmt.Fprintf(r.In, "skew %v\n", by)
		w.OK(err)
		w.change()
	}},
	{"slow cache", nothing, func(w *world) {
		for len(w.able()) <= fewest {
			w.join()
		}
		r := w.any()
		w.note("%s: its objects come late", r.name)
		const late = 3 * time.Second / 2
		r.objects.Slow(late, 0)
		stage.Pass(w.ctx, late) // others see changes now that it does not see when it gets their buckets
		others := slices.DeleteFunc(w.able(), func(name string) bool { return name == r.name })
		w.leave(w.replicas[others[w.random.IntN(len(others))]])
		w.settle()
		r.objects.Slow(0, 0)
	}},
	{"another API server", divided, func(w *world) {
		other := []serving{served, ignored, either}
		other = slices.DeleteFunc(other, func(by serving) bool { return by == w.by })
		w.serveBy(other[w.random.IntN(len(other))])
	}},
	{"SIGSTOP", rough, func(w *world) {
		r := w.any()
		w.suspend(r)
		w.meanwhile()
		w.resume(r)
	}},
	{"call that ignores its ctx", rough, func(w *world) {
		w.stubborn(w.any(), lease)
		w.change()
	}},
	{"call that ignores its ctx, cut off", rough, func(w *world) {
		r := w.any()
		w.stubborn(r, 2*lease)
		w.cut(r)
		w.meanwhile()
		w.heal(r)
	}},
}

// join starts a replica, and waits until it has its share.
func (w *world) join() {
	w.start()
	w.settle()
}

// scaleUp adds a replica, or has one leave if there are too many. A join moves one share.
func (w *world) scaleUp() {
	if len(w.able()) >= most {
		w.leave(w.any())
		w.settle()
		return
	}
	w.settle()
	before, sessions := w.owners.holders(), w.owners.ids()
	w.join()
	after, now := w.owners.holders(), w.owners.ids()
	if slices.ContainsFunc(sessions, func(id string) bool { return !slices.Contains(now, id) }) {
		return // a session was lost, on a slow machine
	}
	moved := 0
	for n := range before {
		if before[n] != after[n] {
			moved++
		}
	}
	n := len(now)
	w.note("a join of replica %d has moved %d buckets", n, moved)
	// A replica may just have given up a bucket that another one has not taken, for the join before.
	if moved < buckets/n || moved > (buckets+n-1)/n+1 {
		w.Errorf("a join of replica %d has moved %d of %d buckets", n, moved, buckets)
	}
}

func (w *world) scaleDown() {
	if len(w.able()) <= fewest {
		w.scaleUp()
	}
	w.leave(w.any())
	w.settle()
}

// lose kills a replica, and at times starts another at once.
func (w *world) lose() {
	w.kill(w.any())
	if len(w.able()) < fewest || w.random.IntN(2) == 0 {
		w.start()
	}
	w.settle()
}

// change has a replica join or leave.
func (w *world) change() {
	if len(w.able()) <= fewest || w.random.IntN(2) == 0 {
		w.scaleUp()
	} else {
		w.scaleDown()
	}
}

// meanwhile is what happens while a replica does not work: its session ends, at least.
func (w *world) meanwhile() {
	over := time.After(lease + w.upTo(lease))
	if what := w.random.IntN(3); what > 0 && len(w.able()) > 1 {
		if what == 1 {
			w.kill(w.any())
		} else {
			w.leave(w.any())
		}
		if w.random.IntN(2) == 0 {
			w.start()
		}
	}
	<-over
	for len(w.replicas) < fewest {
		w.start()
	}
}

// stubborn has one call of a replica ignore its ctx. It waits until the call is under way.
func (w *world) stubborn(r *remote, d time.Duration) {
	w.order(r, order{For: d, Stubborn: true})
	w.note("%s: a call ignores its ctx for %v", r.name, d)
}

// order has the next calls of a replica do as ordered. It waits until they are under way.
func (w *world) order(r *remote, orders ...order) {
	w.Helper()
	w.recorder.expect(r.name, orders...)
	if !w.recorder.until(func() bool { return len(w.recorder.orders[r.name]) == 0 }) {
		w.Fatalf("%s makes no calls", r.name)
	}
}

func (w *world) upTo(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most)))
}
