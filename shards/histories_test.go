package shards_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

var histories = flag.Int("histories", 40, "how many random histories to play")

// history is a random history of a set, in the time of a bubble.
type history struct {
	*world
	random  *rand.Rand
	selects bool       // the API server does
	goes    bool       // the objects' server is restored from backups
	all     []*replica // that live
	cut     map[*replica]bool
	behind  map[*replica]bool // cut off only from the ConfigMaps
	version int               // of the program: every second one has a controller more
	begun   int
	gone    map[string]*gone // the objects that were deleted, and not created again, by name
	log     []string
}

// gone is a delete that must be handled, unless all replicas that know of it have died.
type gone struct {
	uid  types.UID
	know map[*replica]bool // the replicas that know of it
	safe bool              // one of them has left, and has passed it to the others
}

// learn notes which replicas know of which deletes.
func (h *history) learn() {
	synctest.Wait()
	if len(h.behind) > 0 {
		h.excuse()
	}
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
		if how == "stops" && g.know[r] && r.set.Health().Session != "" && !h.cut[r] {
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
		if h.version%2 == 1 {
			r.more = []string{"added"}
		}
	})
	h.all = append(h.all, r)
	h.say("%s starts, calls of %v, writes of Leases of %v", r.name, slow, lag)
}

func (h *history) pick() *replica { return h.all[h.random.IntN(len(h.all))] }

func (h *history) drop(r *replica) {
	h.all = slices.DeleteFunc(h.all, func(other *replica) bool { return other == r })
	delete(h.cut, r)
	delete(h.behind, r)
}

// excuse forgets the deletes that are not reconciled yet. A replica that is behind may get one from
// another replica, reconcile the key from a state that still has the object, and die before it has caught up.
func (h *history) excuse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.gone, func(name string, _ *gone) bool { return h.deleted[name] == 0 })
}

// goBack restores the objects' server from a backup. All replicas are connected again before the server
// reaches the versions that it had: no informer could notice the restore later.
func (h *history) goBack() {
	now, err := strconv.Atoi(h.objects.ResourceVersion())
	testkit.Must(h.t, err)
	h.restore(fmt.Sprint(now - h.random.IntN(min(now-1000, 100)+1)))
	h.say("the server of the objects is restored")
	time.Sleep(time.Minute)
	h.excuse()
	for _, obj := range h.objects.Objects() {
		delete(h.gone, obj.Name)
		for _, r := range h.all {
			r.mu.Lock()
			delete(r.told, obj.UID)
			r.mu.Unlock()
		}
	}
}

// intrude starts another program with the same name of the set, which must not get a bucket while a
// replica of this one works.
func (h *history) intrude() {
	stays := time.Duration(h.random.IntN(20_000)) * time.Millisecond // drawn in any case, so that later steps stay the same
	works := func() bool {
		return slices.ContainsFunc(h.all, func(r *replica) bool { return !h.cut[r] && r.set.Health().Owned > 0 })
	}
	if !works() {
		return
	}
	h.say("another program comes")
	other := h.start("other", controls("others"))
	time.Sleep(stays)
	if works() && other.owned() > 0 {
		h.t.Errorf("another program has %d buckets", other.owned())
	}
	other.crash()
	h.any = h.all[0]
}

// copyLeases has the set begin with Leases that a backup tool has brought from another cluster.
func (h *history) copyLeases() {
	by := ""
	if h.divided {
		by = "namespace"
	}
	for b := range 16 {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("test-bucket-", b), Labels: map[string]string{annotationPrefix + "set": "test"},
			Annotations: map[string]string{
				annotationPrefix + "buckets": "16", annotationPrefix + "by": by,
				annotationPrefix + "seen":    `{"objects":{"0.ConfigMap/":"99999999"}}`,
				annotationPrefix + "handled": `[{"buckets":"0-15","handled":{"objects":{"0.ConfigMap/":{"after":"1","to":"99999999"}}}}]`,
			},
		}}
		if by == "" {
			delete(lease.Annotations, annotationPrefix+"by")
		}
		if b%2 == 0 { // the others do not show it, and have only seen too much
			lease.Annotations[annotationPrefix+"lease"] = "of another cluster"
		} else {
			delete(lease.Annotations, annotationPrefix+"handled")
		}
		if b%3 == 0 {
			lease.Spec.HolderIdentity = new("somebody_else")
		}
		h.leases.Apply(lease)
	}
}

// change changes some objects.
func (h *history) change() {
	var changes []string
	defer func() { h.say("changes of objects: %s", strings.Join(changes, ", ")) }()
	for range 1 + h.random.IntN(20) {
		n := h.random.IntN(60)
		switch obj, err := h.objects.Get(h.key(n)); {
		case err != nil:
			changes = append(changes, fmt.Sprint("create ", n))
			h.write(n, "1")
			delete(h.gone, name(n))
		case h.random.IntN(3) == 0:
			changes = append(changes, fmt.Sprint("delete ", n))
			if _, err := h.objects.Delete(h.key(n)); err != nil {
				h.t.Error(err)
			}
			h.mu.Lock()
			h.traceLocked(name(n), "deleted")
			h.mu.Unlock()
			if time.Now().After(h.unsure) { // else a replica may take it for one that was handled before the restore
				h.gone[name(n)] = &gone{uid: obj.UID, know: map[*replica]bool{}}
			}
			h.mu.Lock()
			delete(h.deleted, name(n))
			h.mu.Unlock()
		default:
			changes = append(changes, fmt.Sprint("update ", n))
			h.write(n, fmt.Sprint(len(obj.Data["value"]), h.random.IntN(1000)))
		}
	}
}

func (h *history) step() {
	h.change()
	switch what := h.random.IntN(14); {
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
			delete(h.behind, r)
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
	case what < 10:
		r := h.pick()
		if h.behind[r] = !h.behind[r]; h.behind[r] {
			h.say("%s gets no changes of objects any more", r.name)
			r.link.cutObjects()
		} else {
			h.say("%s gets changes of objects again", r.name)
			delete(h.behind, r)
			r.link.healObjects()
		}
	case what < 11:
		h.version++
		h.say("version %d of the program", h.version)
	case what < 12:
		h.intrude()
	case what < 13 && h.goes && len(h.cut)+len(h.behind) == 0:
		h.goBack()
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
	for _, r := range h.all {
		if h.cut[r] {
			h.say("%s is back", r.name)
			r.link.heal()
			delete(h.behind, r)
		}
	}
	for _, r := range h.all { // those that are behind let the others do the work, if there are any
		if h.behind[r] && (len(h.behind) == len(h.all) || h.divided || h.random.IntN(2) == 0) {
			delete(h.behind, r)
			r.link.healObjects()
		}
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
	current := slices.DeleteFunc(slices.Clone(h.all), func(r *replica) bool { return h.behind[r] })
	h.balanced(current...)
	if h.divided {
		h.apart(current...)
	}
	h.shown()
	for _, r := range h.all {
		r.kill()
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
}

// shown checks that the keys which wait for a replica with another version of the program show.
func (h *history) shown() {
	young := slices.DeleteFunc(slices.Clone(h.all), func(r *replica) bool { return r.more == nil })
	if len(young) == 0 {
		return
	}
	waiting := h.waiting("added")
	for _, r := range young {
		if s := r.set.Health(); len(young) == len(h.all) && s.Unserved > 0 || waiting > 0 && s.Unserved == 0 {
			h.t.Errorf("%s: %d keys of the added controller wait, %d of %d replicas have it, Unserved is %d", r.name, waiting, len(young), len(h.all), s.Unserved)
		}
	}
}

func TestRandomHistories(t *testing.T) {
	for seed := range *histories {
		testkit.InBubble(t, fmt.Sprint(seed), func(t *testing.T) {
			h := &history{world: newWorld(t, 0), random: rand.New(rand.NewPCG(uint64(seed), 1)), cut: map[*replica]bool{}, behind: map[*replica]bool{}, gone: map[string]*gone{}}
			h.divided, h.selects, h.goes = seed%2 == 1, seed%4 == 3, seed%6 < 2
			if seed%5 == 0 {
				h.copyLeases()
			}
			t.Cleanup(func() { // after the replicas have stopped
				if t.Failed() {
					t.Logf("to play it again: go test -run 'TestRandomHistories/^%d$' ./shards -histories %d\n%s", seed, seed+1, strings.Join(h.log, "\n"))
				}
			})
			h.play()
			t.Logf("%d calls, %d refused effects", h.count, h.refused)
		})
	}
}
