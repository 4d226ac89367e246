package shards_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/shards"
)

var histories = flag.Int("histories", 40, "how many random histories to play")

// history is a random history of a set, in the time of a bubble.
type history struct {
	*world
	random  *rand.Rand
	selects bool       // the API server does
	all     []*replica // that live
	cut     map[*replica]bool
	begun   int
	gone    map[string]*gone // the objects that were deleted, and not created again, by name
	log     []string
}

// gone is a delete that somebody must handle, unless all who know of it have died.
type gone struct {
	uid  types.UID
	know map[*replica]bool // the replicas that were told
	safe bool              // one of them has left, and told the others
}

// learn notes which replicas were told of which deletes.
func (h *history) learn() {
	synctest.Wait()
	for _, g := range h.gone {
		for _, r := range h.all {
			if r.toldOf(g.uid) && r.set.Health().Synced {
				g.know[r] = true
			}
		}
	}
}

// leaves notes that a replica ends, or that it is cut off.
func (h *history) leaves(r *replica, how string) {
	h.say("%s %s", r.name, how)
	for _, g := range h.gone {
		if how == "stops" && g.know[r] && r.set.Health().Shards.Session != "" && !h.cut[r] {
			g.safe = true
		}
		if how != "is cut off" {
			delete(g.know, r)
		}
	}
}

func (h *history) say(format string, args ...any) {
	h.log = append(h.log, fmt.Sprint(now(), " ")+fmt.Sprintf(format, args...))
}

func (h *history) begin() {
	h.begun++
	slow := time.Duration(h.random.IntN(3000)) * time.Millisecond
	lag := time.Duration(max(0, h.random.IntN(6000)-3600)) * time.Millisecond // two writes take less than RenewEvery
	r := h.start(fmt.Sprint("r", h.begun), func(opts *shards.Options, r *replica) {
		r.slow = slow
		r.link.lag.Store(int64(lag))
		if h.selects {
			selects(opts, r)
		}
	})
	h.all = append(h.all, r)
	h.say("%s starts, calls of %v, writes of Leases of %v", r.name, slow, lag)
}

func (h *history) pick() *replica { return h.all[h.random.IntN(len(h.all))] }

func (h *history) drop(r *replica) {
	h.all = slices.DeleteFunc(h.all, func(other *replica) bool { return other == r })
	delete(h.cut, r)
}

// change changes some objects.
func (h *history) change() {
	for range 1 + h.random.IntN(20) {
		n := h.random.IntN(60)
		switch obj, err := h.objects.Get(h.key(n)); {
		case err != nil:
			h.write(n, "1")
			delete(h.gone, name(n))
		case h.random.IntN(3) == 0:
			if _, err := h.objects.Delete(h.key(n)); err != nil {
				h.t.Error(err)
			}
			h.mu.Lock()
			h.traceLocked(name(n), "deleted")
			h.mu.Unlock()
			g := &gone{uid: obj.UID, know: map[*replica]bool{}}
			h.gone[name(n)] = g
			h.mu.Lock()
			delete(h.deleted, name(n))
			h.mu.Unlock()
		default:
			h.write(n, fmt.Sprint(len(obj.Data["value"]), h.random.IntN(1000)))
		}
	}
}

func (h *history) step() {
	h.change()
	switch what := h.random.IntN(10); {
	case what < 3 && len(h.all) < 5 || len(h.all) == 0:
		h.begin()
	case what < 4:
		r := h.pick()
		h.leaves(r, "stops")
		r.kill()
		h.drop(r)
	case what < 6:
		r := h.pick()
		h.leaves(r, "dies")
		r.crash()
		h.drop(r)
		if h.random.IntN(2) == 0 {
			h.begin()
		}
	case what < 8:
		r := h.pick()
		if h.cut[r] {
			h.say("%s is back", r.name)
			r.link.heal()
			delete(h.cut, r)
		} else {
			h.leaves(r, "is cut off")
			r.link.cut()
			h.cut[r] = true
		}
	case what < 9:
		r := h.pick()
		h.say("%s gets no answers", r.name)
		r.link.loses.Store(true)
		time.Sleep(time.Duration(h.random.IntN(2000)) * time.Millisecond)
		r.link.loses.Store(false)
	default:
	}
	time.Sleep(time.Duration(h.random.IntN(20_000)) * time.Millisecond)
	h.learn()
}

func (h *history) play() {
	for n := range 60 {
		h.write(n, "1")
	}
	h.begin()
	for range 20 {
		h.step()
	}
	for r := range h.cut {
		h.say("%s is back", r.name)
		r.link.heal()
	}
	if len(h.all) == 0 {
		h.begin()
	}
	h.say("the end begins")
	h.settled(5 * time.Minute)
	h.mu.Lock()
	for name, g := range h.gone {
		if h.deleted[name] == 0 && (g.safe || len(g.know) > 0) {
			h.t.Errorf("the delete of %s reached no replica, safe: %v, %d know of it:\n%s", name, g.safe, len(g.know), strings.Join(h.traces[name], "\n"))
			h.t.Log("its bucket:\n" + strings.Join(h.traces[fmt.Sprint("test-bucket-", h.bucket(name))], "\n"))
		}
	}
	h.mu.Unlock()
	h.balanced(h.all...)
	if h.divided {
		h.apart(h.all...)
	}
	for _, r := range h.all {
		r.kill()
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
}

func TestRandomHistories(t *testing.T) {
	for seed := range *histories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{world: newWorld(t, 0), random: rand.New(rand.NewPCG(uint64(seed), 1)), cut: map[*replica]bool{}, gone: map[string]*gone{}}
				h.divided, h.selects = seed%2 == 1, seed%4 == 3
				h.play()
				if t.Failed() {
					t.Log("the history:\n" + strings.Join(h.log, "\n"))
				}
				t.Logf("%d calls, %d refused effects", h.count, h.refused)
			})
		})
	}
}
