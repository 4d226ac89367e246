package disk_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// history is a long list of steps, each of which can be told by its number: so one
// process makes them and another knows what they have led to.
type history struct {
	step    int
	objects map[string]informer.AnyObject
	graves  map[string]informer.AnyObject // by name and UID
}

func newHistory() *history {
	return &history{objects: map[string]informer.AnyObject{}, graves: map[string]informer.AnyObject{}}
}

// at returns the history after that many steps.
func at(step int) *history {
	h := newHistory()
	for h.step < step {
		h.next()
	}
	return h
}

// bookmark is what the store's is after the step.
func (h *history) bookmark() string {
	if h.step == 0 {
		return ""
	}
	return strconv.Itoa(h.step)
}

// next makes the next step: some dozens of changes of a few hundred objects, of sizes
// from nothing to several pages.
func (h *history) next() (changes []cache.Transaction) {
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

// contents returns what a store that has taken all steps holds, as contents does.
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

// known are the first steps of every history, made once.
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
	changes  []cache.Transaction
	contents []string // after it
}
