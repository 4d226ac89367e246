package disk_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"github.com/customcacheinformer/informer"
)

// history is a long list of steps. The number of a step determines the step, so that one
// process can make the steps and another can compute the contents they lead to.
type history struct {
	step    int
	objects map[string]informer.AnyObject
	graves  map[string]informer.AnyObject // the tombstones, by name and UID
}

func newHistory() *history {
	return &history{objects: map[string]informer.AnyObject{}, graves: map[string]informer.AnyObject{}}
}

// bookmark returns the store's bookmark after the current step.
func (h *history) bookmark() string {
	if h.step == 0 {
		return ""
	}
	return strconv.Itoa(h.step)
}

// next makes the next step: some dozens of changes of a few hundred objects, of sizes from
// nothing to several pages.
func (h *history) next() (changes []informer.Change) {
	h.step++
	random := rand.New(rand.NewPCG(uint64(h.step), 1))
	for range 1 + random.IntN(60) {
		key := fmt.Sprintf("o-%03d", random.IntN(400))
		old := h.objects[key]
		if old != nil && random.IntN(3) == 0 {
			changes = append(changes, deleting(old))
			h.graves[key+string(old.GetUID())] = old
			delete(h.objects, key)
			continue
		}
		size := random.IntN(200)
		switch random.IntN(20) {
		case 0:
			size = 40_000
		case 1, 2, 3, 4:
			size = 3000
		}
		obj := newSized(key, h.step, size)
		if old != nil {
			obj.SetUID(old.GetUID())
		}
		changes = append(changes, adding(obj))
		h.objects[key] = obj
	}
	return changes
}

// contents returns the contents of a store after all steps, like the function contents.
func (h *history) contents() []string {
	all := []string{"bookmark " + h.bookmark()}
	for _, obj := range h.graves {
		all = append(all, "tombstone "+describe(obj))
	}
	for _, obj := range h.objects {
		all = append(all, "object "+describe(obj))
		values, _ := versionIndexer["version"](obj)
		for _, value := range values {
			all = append(all, "under "+value+" "+describe(obj))
		}
	}
	slices.Sort(all)
	return all
}

// known returns the first steps of every history, computed once.
var known = sync.OnceValue(func() (all []knownStep) {
	h := newHistory()
	all = append(all, knownStep{nil, h.contents()})
	for range 64 {
		changes := h.next()
		all = append(all, knownStep{changes, h.contents()})
	}
	return all
})

type knownStep struct {
	changes  []informer.Change
	contents []string // after the step
}
