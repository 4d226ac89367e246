package model_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer/informertest"
)

var (
	histories   = flag.Int("histories", 3000, "number of histories to play; a tenth of it with -short")
	historySeed = flag.Int("history-seed", -1, "play only the history with this seed")
)

// TestHistories plays random histories of a source and of the processes that follow it with
// one durable store. Each process stops or crashes at some point, and the next process
// continues with the store. Each time a process has stopped or crashed:
//
//   - The store equals the state of the source at the store's bookmark, or has no bookmark.
//   - For each object of which the store has neither the object nor a tombstone, every watcher
//     that may have known the object got its delete.
//
// When all is well and quiet:
//
//   - The watchers and the store agree with the source.
//   - The store has no tombstones.
//   - The source got only the expected requests.
func TestHistories(t *testing.T) {
	first, n := 0, *histories
	switch {
	case *historySeed >= 0:
		first, n = *historySeed, 1
	case testing.Short():
		n /= 10
	}
	var failed, wiped atomic.Int64
	t.Cleanup(func() { t.Logf("%d histories, %d stores with undetectable undone changes", n, wiped.Load()) })
	for seed := first; seed < first+n; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			if failed.Load() > 3 {
				t.Skip("enough histories have failed")
			}
			steps := randomSteps(uint64(seed))
			h := play(t, uint64(seed), steps)
			wiped.Add(int64(h.wiped))
			if len(h.problems) > 0 {
				failed.Add(1)
				t.Errorf("the original history:\n%s", h)
				t.Errorf("the shortest history that fails:\n%s\nto play the original history again:\n  go test -run 'TestHistories$' ./internal/model -history-seed %d", shrink(t, uint64(seed), steps, h), seed)
			}
		})
	}
}

// step is an operation and the seed of its random choices. Each step has a seed of its own, so
// removing one step does not change the others.
type step struct {
	op   int
	seed uint64
}

// ops are the possible steps. A higher weight makes a step more frequent. A step that needs a
// process starts one if none runs, so every sequence makes sense.
var ops = []struct {
	weight int
	do     func(*history, *rand.Rand)
}{
	{24, (*history).write},
	{10, (*history).pause},
	{5, (*history).settle},
	{4, (*history).disconnect},
	{3, (*history).mute},
	{4, (*history).expire},
	{4, (*history).compact},
	{6, (*history).restore},
	{3, (*history).bookmark},
	{12, (*history).fault},
	{3, (*history).slowStore},
	{8, (*history).trouble},
	{4, (*history).relieve},
	{4, (*history).join},
	{2, (*history).remove},
	{4, (*history).crash},
	{6, (*history).stop},
	{6, (*history).setNamespaces},
}

func randomSteps(seed uint64) []step {
	random := rand.New(rand.NewPCG(seed, 1))
	var bag []int
	for op := range ops {
		bag = append(bag, slices.Repeat([]int{op}, ops[op].weight)...)
	}
	steps := make([]step, 5+random.IntN(35))
	for i := range steps {
		steps[i] = step{bag[random.IntN(len(bag))], random.Uint64()}
	}
	return steps
}

// play plays a history until something is wrong.
func play(t *testing.T, seed uint64, steps []step) (h *history) {
	synctest.Test(t, func(*testing.T) {
		h = newHistory(seed)
		for _, s := range steps {
			h.reap()
			if h.broken() {
				break
			}
			h.settled = false
			ops[s.op].do(h, rand.New(rand.NewPCG(s.seed, 2)))
			h.calm = h.settled
		}
		h.finish()
	})
	return h
}

// shrink removes each step that the failure does not need. The goroutines run in another order
// each time, so shrink tries four times without each step.
func shrink(t *testing.T, seed uint64, steps []step, h *history) *history {
	for i := len(steps) - 1; i >= 0; i-- {
		fewer := slices.Delete(slices.Clone(steps), i, i+1)
		for range 4 {
			if next := play(t, seed, fewer); len(next.problems) > 0 {
				steps, h = fewer, next
				break
			}
		}
	}
	return h
}

func (h *history) String() string {
	said := slices.Clone(h.said)
	for _, k := range h.last {
		said = append(said, fmt.Sprintf("%s was called for: %s", k.name, strings.Join(k.heard, ", ")))
	}
	return fmt.Sprintf("history %d:\n  %s\nbut:\n  %s", h.seed, strings.Join(said, "\n  "), strings.Join(h.problems, "\n  "))
}

// The steps of the source.

func (h *history) write(r *rand.Rand) {
	for range 1 + r.IntN(4) {
		h.change(r)
		if r.IntN(2) == 0 {
			synctest.Wait()
		}
	}
}

func (h *history) change(r *rand.Rand) {
	if !h.mayMove(2) {
		return
	}
	h.count++
	obj := objectAt(h.place(fmt.Sprintf("o%d", r.IntN(5))), strconv.Itoa(h.count))
	if r.IntN(12) == 0 {
		obj.Data["value"] += " indigestible"
	}
	_, missing := h.src.Get(h.place(obj.Name))
	switch what := r.IntN(8); {
	case missing == nil && what < 4:
		_, _ = h.src.Delete(h.place(obj.Name))
		h.moved("delete %s", obj.Name)
		if what > 1 {
			break
		}
		fallthrough // create it again
	default:
		stored := h.src.Apply(obj)
		h.wrote[h.version()] = obj.Name
		h.moved("apply %s, uid %s, value %s", obj.Name, idOf(stored.UID), obj.Data["value"])
	}
}

// again changes the object that was changed at the next version before the source went back. A
// version of an object may then stand for two different states.
func (h *history) again(r *rand.Rand) {
	name, there := h.wrote[h.version()+1]
	if _, err := h.src.Get(keyOf(name)); !there || err != nil || !h.mayMove(1) {
		h.change(r)
		return
	}
	h.count++
	h.src.Apply(object(name, strconv.Itoa(h.count)))
	h.moved("apply %s again, value %d", name, h.count)
}

func (h *history) disconnect(*rand.Rand) {
	h.say("disconnect")
	h.src.Disconnect()
}

func (h *history) mute(r *rand.Rand) {
	on := r.IntN(3) > 0
	h.say("mute %v", on)
	h.src.SetFaults(informertest.Faults{RefuseExpired: h.refuses, Mute: on})
}

func (h *history) bookmark(*rand.Rand) {
	h.say("bookmark")
	h.src.Bookmark()
}

// expire makes the informer list again. If nothing else is going on, it must list once.
func (h *history) expire(r *rand.Rand) {
	calm, before := h.calm && h.life != nil, len(h.src.Requests())
	if !calm && r.IntN(2) == 0 {
		h.src.SetFaults(informertest.Faults{RefuseExpired: h.refuses, Mute: true})
		h.change(r)
		h.change(r)
		defer h.src.SetFaults(informertest.Faults{RefuseExpired: h.refuses})
	}
	if !h.mayMove(1) {
		return
	}
	h.src.Expire()
	h.since = h.version()
	h.moved("expire")
	if !calm {
		return
	}
	sleepBubble(time.Minute)
	got := asked(h.src, before)
	if n := strings.Count(got, "list") + strings.Count(got, "stream"); n != 1 && !h.split || h.split && n != len(h.in) {
		h.problem("after a 410 the source was asked for: %s", got)
	}
}

func (h *history) compact(*rand.Rand) {
	if !h.mayMove(1) {
		return
	}
	h.src.Compact()
	h.since = h.version()
	h.moved("compact")
}

// restore sets the source back to a state of the past. Until the informer has noticed, the
// source must not reach a version that the informer has seen: after that, nothing could tell
// the informer of the restore.
func (h *history) restore(r *rand.Rand) {
	if h.split {
		return // each namespace would notice it by itself
	}
	now := h.version()
	to := now - 1 - r.Uint64N(6)
	if to < h.since {
		return
	}
	most := to + 1 // the version that the informer has seen is not known
	switch {
	case h.life == nil:
		most = 0
	case h.calm:
		most = now
	}
	if h.life != nil {
		h.server.refuses.Store(1 + r.Int32N(2))
	}
	if err := h.src.Restore(strconv.FormatUint(to, 10)); err != nil {
		h.problem("%v", err)
		return
	}
	h.undo(to)
	h.moved("restore to %d", to)
	if most > 0 && (h.most == 0 || most < h.most) {
		h.most = most
	}
	if h.life == nil {
		h.bound()
	}
	if h.life == nil || h.calm {
		for range r.IntN(4) {
			h.again(r)
		}
	}
}

// The steps of the process.

func (h *history) pause(r *rand.Rand) {
	h.ensure(r, nil)
	d := []time.Duration{0, time.Millisecond, 150 * time.Millisecond, 3 * time.Second, 20 * time.Second, 90 * time.Second}[r.IntN(6)]
	h.say("%v pass", d)
	sleepBubble(d)
}

// fault makes an operation of the store fail, makes the store refuse it, or crashes the
// process in it.
func (h *history) fault(r *rand.Rand) {
	f := &storeFault{
		op:    []string{"apply", "apply", "apply", "apply", "forget", "forget", "scan", "resume", "tombstones", "get"}[r.IntN(10)],
		kind:  []faultKind{faultCrash, faultRefuse, faultFail}[r.IntN(3)],
		after: r.IntN(2) == 0,
		first: 1 + r.Int64N(3),
		times: 1 + r.Int64N(3),
	}
	if f.kind == faultRefuse {
		f.after = false // a refused operation has no effect
		f.last = r.Int64N(4)
	}
	h.ensure(r, f)
}

func (h *history) slowStore(r *rand.Rand) {
	h.ensure(r, nil)
	d := time.Duration(1+r.IntN(200)) * time.Millisecond
	h.say("each operation of the store takes %v", d)
	h.life.store.Delay(d)
}

// trouble makes a watcher block, or makes it fail if its events are retried.
func (h *history) trouble(r *rand.Rand) {
	h.ensure(r, nil)
	if k := h.anyKeeper(r); k != nil {
		deletesOnly := r.IntN(2) == 0
		h.say("%s is in trouble; with deletes only: %v", k.name, deletesOnly)
		k.trouble(deletesOnly, k.opts.Retry != nil && r.IntN(3) > 0)
	}
}

func (h *history) relieve(r *rand.Rand) {
	if h.life == nil {
		return
	}
	if k := h.anyKeeper(r); k != nil {
		h.say("%s is well", k.name)
		k.relieve()
	}
}

func (h *history) join(r *rand.Rand) {
	h.ensure(r, nil)
	synctest.Wait() // a watcher added before Run has begun would not be a late one
	h.life.add(h, kinds[r.IntN(len(kinds))])
}

func (h *history) remove(r *rand.Rand) {
	h.ensure(r, nil)
	if k := h.anyKeeper(r); k != nil {
		h.say("remove %s", k.name)
		k.removed = true
		k.registration.Remove()
	}
}

func (h *history) crash(r *rand.Rand) {
	h.ensure(r, nil)
	h.say("crash")
	h.life.crash()
	h.reap()
}

func (h *history) stop(r *rand.Rand) {
	h.ensure(r, nil)
	h.say("stop")
	h.end()
}

func (h *history) setNamespaces(r *rand.Rand) {
	if !h.split {
		return
	}
	h.in = [][]string{namespaces, namespaces[:1], namespaces[1:], {}}[r.IntN(4)]
	h.say("namespaces %q", h.in)
	if h.life == nil {
		return
	}
	if err := h.life.informer.SetNamespaces(h.in); err != nil && !h.life.crashed.Load() {
		h.problem("SetNamespaces: %v", err)
	}
}
