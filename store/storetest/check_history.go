package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

func (c *checker) histories(n int, run func(c *checker, random *rand.Rand)) {
	for i := range n {
		seed := c.Seed + uint64(i)
		one := newChecker(c.T, c.suite)
		func() {
			defer func() {
				if c.Failed() {
					c.Logf("this is the history of seed %d; set the option Seed to %d to run it first", seed, seed)
				}
			}()
			run(one, rand.New(rand.NewPCG(seed, 0)))
		}()
		if c.Failed() {
			return
		}
	}
}

// few are the keys of histories. There are few keys, so that many changes hit each of them.
var few = []string{"a", "default/a", "default/b", "default/a-b", "other/a", "default/system:c"}

func plainHistories(c *checker) {
	c.histories(5, func(c *checker, random *rand.Rand) {
		known := map[string]informer.AnyObject{}
		for version := range c.rounds(200) {
			key := few[random.IntN(len(few))]
			old, exists := known[key]
			obj := c.incarnation(key, strconv.Itoa(random.IntN(2)), version)
			switch {
			case random.IntN(40) == 0:
				known = map[string]informer.AnyObject{key: obj}
				if err := c.plain().Replace([]any{obj}, "1"); err != nil {
					c.Fatalf("Replace: %v", err)
				}
			case !exists:
				c.add(obj)
				known[key] = obj
			case random.IntN(3) == 0:
				c.delete(old)
				delete(known, key)
			default:
				c.update(obj)
				known[key] = obj
			}
			if random.IntN(8) == 0 {
				c.want(slices.Collect(maps.Values(known))...)
			}
		}
	})
}

// chronicle is the history of a Durable: a model of its present state, and of all states since
// it was opened.
type chronicle struct {
	*checker
	random  *rand.Rand
	now     *model
	known   map[string]informer.AnyObject // the objects of now
	version int
	past    []*moment
}

// moment is one state of a chronicle.
type moment struct {
	model *model
	known map[string]informer.AnyObject
}

func durableHistories(c *checker) {
	c.histories(10, func(c *checker, random *rand.Rand) {
		h := &chronicle{checker: c, random: random, now: newModel(), known: map[string]informer.AnyObject{}}
		h.note()
		for range c.rounds(160) {
			h.step()
			h.note()
			if random.IntN(8) == 0 {
				c.wantModel(h.now)
			}
		}
		c.wantModel(h.now)
	})
}

func (h *chronicle) note() {
	h.past = append(h.past, &moment{h.now.clone(), maps.Clone(h.known)})
}

// step does one random thing.
func (h *chronicle) step() {
	h.Helper()
	switch n := h.random.IntN(20); {
	case n < 11:
		h.applySome()
	case n < 16:
		h.forgetSome()
	case n < 17:
		h.apply(h.now, h.next()) // a bookmark without changes
	case n < 18:
		h.apply(h.now, "")
	case n < 19:
		h.over(h.durable.Reopen(h.T, h.lasting()))
		h.wantModel(h.now)
		h.past = nil
	default:
		h.crash()
	}
}

func (h *chronicle) next() string {
	h.version++
	return strconv.Itoa(h.version)
}

// applySome applies random changes as an informer would, sometimes twice.
func (h *chronicle) applySome() {
	h.Helper()
	var changes []informer.Change
	for range h.random.IntN(5) {
		key := few[h.random.IntN(len(few))]
		old, exists := h.known[key]
		if h.random.IntN(3) == 0 {
			if !exists {
				old = h.incarnation(key, strconv.Itoa(h.random.IntN(4)), h.version)
			}
			changes = append(changes, deleting(old))
			delete(h.known, key)
			continue
		}
		h.next()
		obj := h.incarnation(key, strconv.Itoa(h.random.IntN(4)), h.version)
		if exists && obj.GetUID() != old.GetUID() && h.random.IntN(2) == 0 {
			changes = append(changes, deleting(old))
		}
		changes = append(changes, putting(obj))
		h.known[key] = obj
	}
	bookmark := h.next()
	for range 1 + h.random.IntN(2) {
		h.apply(h.now, bookmark, changes...)
	}
}

func (h *chronicle) forgetSome() {
	h.Helper()
	some := map[string][]types.UID{}
	for range h.random.IntN(6) {
		key := few[h.random.IntN(len(few))]
		some[key] = append(some[key], types.UID(fmt.Sprintf("uid-%s-%d", key, h.random.IntN(4))))
	}
	h.forget(h.now, some)
}

// crash crashes the store, and continues with the state that is left. This must be a state
// that the store had before.
func (h *chronicle) crash() {
	h.Helper()
	if h.durable.Crash == nil {
		return
	}
	h.over(h.durable.Crash(h.T, h.lasting()))
	found := h.findMoment()
	h.now, h.known, h.past = found.model, found.known, nil
}

// findMoment returns the moment whose state the store has after a crash. It ends the check
// with a failure if there is none.
func (h *chronicle) findMoment() *moment {
	h.Helper()
	state := h.readModel()
	for i, m := range slices.Backward(h.past) {
		if m.model.same(state) {
			return m
		}
		if !h.durable.LosesLast {
			break
		}
		if i == 0 {
			for _, m := range h.past {
				if m.model.bookmark == state.bookmark {
					h.Fatalf("after a crash the store has the bookmark %q, but not the state at that bookmark: %s", state.bookmark, m.model.difference(state))
				}
			}
		}
	}
	h.Fatalf("after a crash, the store does not hold what it held before: %s", h.past[len(h.past)-1].model.difference(state))
	return nil
}
