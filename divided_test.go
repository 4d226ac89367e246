package informer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	parts "github.com/customcacheinformer/informer/internal/source"
)

// divided delivers the objects of src with some names. Its parts deliver all of src, as an API server
// does that cannot select.
type divided struct {
	cache.ListerWatcher
	src *source

	mu      sync.Mutex
	names   string // one letter for each
	out     string // the letters that the part last applied has not, and no part since
	changed chan struct{}
	applied []string // the names of the parts that were applied
}

// without returns s without some letters.
func without(s, letters string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(letters, r) {
			return -1
		}
		return r
	}, s)
}

func newDivided(src *source, names string) *divided {
	return &divided{src: src, names: names, changed: make(chan struct{})}
}

func (d *divided) Part() parts.Part {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.names
	d.out = without(d.out, names)
	return parts.Part{
		Lister: d.src, Changed: d.changed,
		Has: func(key string) bool { return strings.Contains(names, strings.TrimPrefix(key, "default/")) },
		Applied: func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.applied = append(d.applied, names)
			d.out = without("abcdefghxyz", names+d.names)
		},
	}
}

// isOut reports whether an object has left the store, and does not come back yet.
func (d *divided) isOut(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Contains(d.out, name)
}

// turn switches to another part.
func (d *divided) turn(names string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names = names
	close(d.changed)
	d.changed = make(chan struct{})
}

// expectApplied expects that lists of these parts were applied since the last look.
func (d *divided) expectApplied(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	equal(t, "applied", d.applied, want)
	d.applied = nil
}

// eachFirstState runs a test with each way in which an informer gets its first state.
func eachFirstState(t *testing.T, test func(t *testing.T, opts options)) {
	for name, opts := range map[string]options{
		"list":          {WatchList: informer.WatchListOff},
		"early list":    {WatchList: informer.WatchListOff, PageSize: 2, Intake: informer.IntakeEarly},
		"stream":        {WatchList: informer.WatchListOn},
		"early stream":  {WatchList: informer.WatchListOn, Intake: informer.IntakeEarly},
		"with RealFIFO": {Queue: informer.QueueRealFIFO},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, opts) }) })
	}
}

func letters(names string) (objs []configMap) {
	for _, name := range strings.Split(names, "") {
		objs = append(objs, object(name, "1"))
	}
	return objs
}

// cached returns the names in the store.
func cached(inf *ci) string {
	var names []string
	for _, obj := range inf.All() {
		names = append(names, obj.Name)
	}
	return strings.Join(sorted(names), "")
}

// remove deletes objects.
func remove(t *testing.T, src *source, names ...string) {
	t.Helper()
	for _, name := range names {
		must(src.Delete(keyOf(name)))
	}
}

// told returns the events that a watcher got, such as "+a" or "-b", and forgets them.
func told(events *[]string) string {
	s := strings.Join(sorted(*events), " ")
	*events = nil
	return s
}

func TestObjectsThatLeaveThePartAreNotDelivered(t *testing.T) {
	eachFirstState(t, func(t *testing.T, opts options) {
		src := informertest.NewSource(letters("abcdef")...)
		d := newDivided(src, "abc")
		inf := must(informer.NewFrom(d, opts))
		var events []string
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			events = append(events, map[informer.EventType]string{informer.EventAdded: "+", informer.EventUpdated: "*", informer.EventDeleted: "-"}[e.Type]+e.Object().Name)
			return nil
		}), informer.WatcherOptions{})
		start(t, inf)
		check := func(step, wantCached, wantTold string, foreign int) {
			t.Helper()
			sleepBubble(time.Second)
			equal(t, step+": the store has", cached(inf), wantCached)
			equal(t, step+": events", told(&events), wantTold)
			equal(t, step+": foreign", inf.Health().Foreign, foreign)
		}
		check("the first part", "abc", "+a +b +c", 3)
		d.expectApplied(t, "abc")
		src.Apply(object("f", "2"))
		src.Apply(object("a", "2"))
		check("a change of each", "abc", "*a", 4)
		equal(t, "version", inf.Health().ResourceVersion, src.ResourceVersion())
		src.Apply(object("e", "2"))
		src.Apply(object("f", "3"))
		check("a change of others", "abc", "", 6)
		equal(t, "version after changes of other objects", inf.Health().ResourceVersion, src.ResourceVersion())
		d.turn("cde")
		check("another part", "cde", "+d +e", 9)
		d.expectApplied(t, "cde")
		remove(t, src, "a", "d")
		check("deletes", "ce", "-d", 10)
		d.turn("")
		check("an empty part", "", "", 14)
		d.turn("abcdef")
		check("everything", "bcef", "+b +c +e +f", 14)
		d.expectApplied(t, "", "abcdef")
	})
}

// An object that is deleted while the informer lists another part was in both parts, so its delete is delivered.
func TestADeleteDuringATurnIsDelivered(t *testing.T) {
	eachFirstState(t, func(t *testing.T, opts options) {
		src := informertest.NewSource(letters("abcd")...)
		d := newDivided(src, "abc")
		inf := must(informer.NewFrom(d, opts))
		var deleted []string
		addWatcher(t, inf, informer.WatcherFuncs[configMap]{DeleteFunc: func(_ context.Context, e event) error {
			deleted = append(deleted, e.Old.Name)
			return nil
		}}, informer.WatcherOptions{})
		start(t, inf)
		time.Sleep(time.Second)
		src.Disconnect()
		src.SetFaults(informertest.Faults{Down: true})
		remove(t, src, "a", "b")
		d.turn("bcd")
		time.Sleep(time.Minute)
		src.SetFaults(informertest.Faults{})
		sleepBubble(2 * time.Minute)
		if got := told(&deleted); got != "b" || cached(inf) != "cd" {
			t.Errorf("there were deletes of %q, and the store has %q", got, cached(inf))
		}
	})
}

// After each turn, the list must not be older than the events that the watchers got before.
func TestATurnNeverGoesBackInTime(t *testing.T) {
	eachFirstState(t, func(t *testing.T, opts options) {
		src := informertest.NewSource(letters("abcd")...)
		d := newDivided(src, "ab")
		inf := must(informer.NewFrom(d, opts))
		start(t, inf)
		time.Sleep(time.Second)
		before := len(src.Requests())
		d.turn("abc")
		sleepBubble(time.Second)
		for _, r := range src.Requests()[before:] {
			first := r.Verb == "list" || r.Options.SendInitialEvents != nil
			if first && r.Options.Continue == "" && r.Options.ResourceVersion == "0" {
				t.Errorf("the informer accepts any state: %+v", r)
			}
		}
	})
}

func TestRandomTurns(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			eachFirstState(t, func(t *testing.T, opts options) { playTurns(t, rand.New(rand.NewPCG(seed, 0)), opts) })
		})
	}
}

func playTurns(t *testing.T, random *rand.Rand, opts options) {
	const all = "abcdefgh"
	src := informertest.NewSource(letters(all)...)
	d := newDivided(src, "abcd")
	inf := must(informer.NewFrom(d, opts))
	var mu sync.Mutex // protects lives, and what the views of the watchers have
	lives := map[types.UID]bool{}
	for _, obj := range src.Objects() {
		lives[obj.UID] = true
	}
	var views, doubts []map[types.UID]string
	watch := func(w informer.WatcherOptions, slow time.Duration, fails int) {
		versions, seed := map[types.UID]string{}, random.Uint64()
		doubtful := map[types.UID]string{} // delivered after the object was gone, which is right if its delete follows
		doubts = append(doubts, doubtful)
		views = append(views, versions)
		calls := rand.New(rand.NewPCG(seed, 0)) // protected by mu
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			obj, version := e.Object(), fmt.Sprintf("%9s", e.Object().ResourceVersion)
			mu.Lock()
			if e.Type == informer.EventDeleted && lives[obj.UID] {
				t.Errorf("there was a delete of %s, which exists", obj.Name)
			} else if versions[obj.UID] > version {
				t.Errorf("%s goes back to %s", obj.Name, obj.ResourceVersion)
			}
			if e.Type == informer.EventDeleted {
				delete(doubtful, obj.UID)
			} else if d.isOut(obj.Name) {
				doubtful[obj.UID] = fmt.Sprint(e.Type, " ", obj.Name)
			}
			pause, failed := time.Duration(calls.Int64N(int64(slow+1))), fails > 0 && calls.IntN(fails) == 0
			if !failed {
				versions[obj.UID] = version
			}
			mu.Unlock()
			time.Sleep(pause)
			return errorIf(failed, errors.New("this time not"))
		}), w)
	}
	retry := func(int, error) (time.Duration, bool) { return 3 * time.Second, true }
	watch(informer.WatcherOptions{}, 0, 0)
	watch(informer.WatcherOptions{}, 4*time.Second, 0)
	watch(informer.WatcherOptions{MaxBacklog: 2}, 4*time.Second, 0)
	watch(informer.WatcherOptions{Name: "resynced", MaxBacklog: -1, ResyncPeriod: time.Minute}, time.Second, 0)
	watch(informer.WatcherOptions{Workers: 2}, 6*time.Second, 0)
	watch(informer.WatcherOptions{Workers: 2, Retry: retry, MaxBacklog: 2}, 2*time.Second, 2)
	start(t, inf)
	part := "abcd"
	for step := range 60 {
		name := string(all[random.IntN(len(all))])
		switch random.IntN(8) {
		case 0, 1:
			part = ""
			for _, r := range all {
				if random.IntN(2) == 0 {
					part += string(r)
				}
			}
			d.turn(part)
		case 2:
			mu.Lock()
			if obj, err := src.Delete(keyOf(name)); err == nil {
				delete(lives, obj.UID)
			}
			mu.Unlock()
		case 3:
			src.Disconnect()
		case 4:
			src.SetFaults(informertest.Faults{ListDelay: time.Duration(random.IntN(3000)) * time.Millisecond})
		default:
			mu.Lock()
			lives[src.Apply(object(name, fmt.Sprint(random.IntN(1000)))).UID] = true
			mu.Unlock()
		}
		if step%20 == 10 {
			sleepBubble(time.Nanosecond) // a call under way when an object leaves is not wrong
			watch(informer.WatcherOptions{}, 2*time.Second, 0)
		}
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
	}
	sleepBubble(10 * time.Minute)
	want := ""
	for _, name := range strings.Split(part, "") {
		if _, err := src.Get(keyOf(name)); err == nil {
			want += name
		}
	}
	equal(t, "the store has", cached(inf), want)
	mu.Lock()
	defer mu.Unlock()
	for n, doubtful := range doubts {
		if len(doubtful) > 0 {
			t.Errorf("watcher %d got events of objects that had left: %v", n+1, doubtful)
		}
	}
	for n, versions := range views {
		for _, obj := range inf.All() {
			if versions[obj.UID] != fmt.Sprintf("%9s", obj.ResourceVersion) {
				t.Errorf("watcher %d knows %s at %q, and not at %s", n+1, obj.Name, versions[obj.UID], obj.ResourceVersion)
			}
		}
	}
	for _, w := range inf.Health().Watchers {
		if w.Pending != 0 && w.Name != "resynced" {
			t.Errorf("%d events wait for %s: %+v", w.Pending, w.Name, w)
		}
	}
}

// whole is a divided source with the least that it needs.
type whole struct {
	cache.ListerWatcher
	src *source
}

func (w whole) Part() parts.Part { return parts.Part{Lister: w.src} }

func TestADividedSourceNeedsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, whole{src: informertest.NewSource(letters("ab")...)}, options{})
		start(t, inf)
		time.Sleep(time.Second)
		equal(t, "the store has", cached(inf), "ab")
	})
}

func TestADividedSourceIsNotForADurable(t *testing.T) {
	_, err := informer.NewFrom(whole{src: informertest.NewSource[configMap]()}, options{Durable: informertest.NewDurable()})
	says(t, err, "Options.Durable is set")
}

func TestAWaitForAnObjectThatLeavesItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(letters("ab")...)
		d := newDivided(src, "ab")
		inf := must(informer.NewFrom(d, options{WatchList: informer.WatchListOff}))
		informertest.Run(t, inf)
		result := asking(func() error {
			return inf.WaitFor(within(t, time.Hour), keyOf("a"), func(_ configMap, exists bool) bool { return !exists })
		})
		synctest.Wait()
		d.turn("b")
		time.Sleep(time.Minute)
		_, exists, _ := inf.Get(keyOf("a"))
		equal(t, "exists", exists, false)
		noError(t, <-result)
	})
}

// The server has gone back in time, so the list is compared by contents. The turn comes in the middle of it.
func TestATurnKeepsTheDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(letters("abc")...)
		d := newDivided(src, "abc")
		var relist atomic.Bool
		opts := options{WatchList: informer.WatchListOff, PageSize: 2, Intake: informer.IntakeEarly, ErrorHandler: quiet}
		opts.Transform = func(obj configMap) (configMap, error) {
			if obj.Name == "b" && relist.CompareAndSwap(true, false) {
				src.Apply(object("c", "new")) // gets the version of the lost state
				d.turn("abcd")
				time.Sleep(time.Millisecond) // the turn ends the reading
			}
			return obj, nil
		}
		inf := must(informer.NewFrom(d, opts))
		informertest.Run(t, inf)
		before := src.ResourceVersion()
		src.Apply(object("c", "lost"))
		time.Sleep(time.Second)
		relist.Store(true)
		noError(t, src.Restore(before))
		src.Fail("watch", context.DeadlineExceeded, 1)
		time.Sleep(time.Hour)
		equal(t, "interrupted", relist.Load(), false)
		equal(t, "c", valueOf(inf.Get(keyOf("c"))), "new")
	})
}
