package informer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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
	changed chan struct{}
	applied []string // the names of the parts that were applied
}

func newDivided(src *source, names string) *divided {
	return &divided{src: src, names: names, changed: make(chan struct{})}
}

func (d *divided) Part() parts.Part {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.names
	return parts.Part{
		Lister: d.src, Changed: d.changed,
		Has: func(key string) bool { return strings.Contains(names, strings.TrimPrefix(key, "default/")) },
		Applied: func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.applied = append(d.applied, names)
		},
	}
}

// turn goes on with another part.
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
	if !slices.Equal(d.applied, want) {
		t.Errorf("applied are %q, want %q", d.applied, want)
	}
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
		if _, err := src.Delete(keyOf(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// told returns the events that a watcher was told, such as "+a" or "-b", and forgets them.
func told(events *[]string) string {
	s := strings.Join(sorted(*events), " ")
	*events = nil
	return s
}

func TestObjectsThatLeaveThePartAreNotTold(t *testing.T) {
	eachFirstState(t, func(t *testing.T, opts options) {
		src := informertest.NewSource(letters("abcdef")...)
		d := newDivided(src, "abc")
		inf, err := informer.NewFrom(d, opts)
		if err != nil {
			t.Fatal(err)
		}
		var events []string
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			events = append(events, map[informer.EventType]string{informer.EventAdded: "+", informer.EventUpdated: "*", informer.EventDeleted: "-"}[e.Type]+e.Object().Name)
			return nil
		}), informer.WatcherOptions{})
		start(t, inf)
		check := func(step, wantCached, wantTold string, foreign int) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := cached(inf); got != wantCached {
				t.Errorf("%s: the store has %q, want %q", step, got, wantCached)
			}
			if got := told(&events); got != wantTold {
				t.Errorf("%s: told are %q, want %q", step, got, wantTold)
			}
			if got := inf.Health().Foreign; got != foreign {
				t.Errorf("%s: Foreign is %d, want %d", step, got, foreign)
			}
		}
		check("the first part", "abc", "+a +b +c", 3)
		d.expectApplied(t, "abc")
		src.Apply(object("f", "2"))
		src.Apply(object("a", "2"))
		check("a change of each", "abc", "*a", 4)
		if want := src.ResourceVersion(); inf.Health().ResourceVersion != want {
			t.Errorf("the informer is at %s, want %s", inf.Health().ResourceVersion, want)
		}
		src.Apply(object("e", "2"))
		src.Apply(object("f", "3"))
		check("a change of others", "abc", "", 6)
		if want := src.ResourceVersion(); inf.Health().ResourceVersion != want {
			t.Errorf("after changes of other objects, the informer is at %s, want %s", inf.Health().ResourceVersion, want)
		}
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

// An object that is deleted while the informer lists another part was in both parts, so it is told.
func TestADeleteDuringATurnIsTold(t *testing.T) {
	eachFirstState(t, func(t *testing.T, opts options) {
		src := informertest.NewSource(letters("abcd")...)
		d := newDivided(src, "abc")
		inf, err := informer.NewFrom(d, opts)
		if err != nil {
			t.Fatal(err)
		}
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
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := told(&deleted); got != "b" || cached(inf) != "cd" {
			t.Errorf("told are deletes of %q, and the store has %q", got, cached(inf))
		}
	})
}

// After each turn, the list must not be older than what the watchers were told before.
func TestATurnNeverGoesBackInTime(t *testing.T) {
	eachFirstState(t, func(t *testing.T, opts options) {
		src := informertest.NewSource(letters("abcd")...)
		d := newDivided(src, "ab")
		inf, err := informer.NewFrom(d, opts)
		if err != nil {
			t.Fatal(err)
		}
		start(t, inf)
		time.Sleep(time.Second)
		before := len(src.Requests())
		d.turn("abc")
		time.Sleep(time.Second)
		synctest.Wait()
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
	inf, err := informer.NewFrom(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // protects lives
	lives := map[types.UID]bool{}
	for _, obj := range src.Objects() {
		lives[obj.UID] = true
	}
	versions := map[types.UID]string{}
	addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
		mu.Lock()
		defer mu.Unlock()
		if obj := e.Object(); e.Type == informer.EventDeleted && lives[obj.UID] {
			t.Errorf("told is a delete of %s, which lives", obj.Name)
		} else if versions[obj.UID] > fmt.Sprintf("%9s", obj.ResourceVersion) {
			t.Errorf("%s goes back to %s", obj.Name, obj.ResourceVersion)
		} else {
			versions[obj.UID] = fmt.Sprintf("%9s", obj.ResourceVersion)
		}
		return nil
	}), informer.WatcherOptions{})
	start(t, inf)
	part := "abcd"
	for range 60 {
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
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	want := ""
	for _, name := range strings.Split(part, "") {
		if _, err := src.Get(keyOf(name)); err == nil {
			want += name
		}
	}
	if got := cached(inf); got != want {
		t.Errorf("the store has %q, want %q", got, want)
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
		inf, err := informer.NewFrom(whole{src: informertest.NewSource(letters("ab")...)}, options{})
		if err != nil {
			t.Fatal(err)
		}
		start(t, inf)
		time.Sleep(time.Second)
		if got := cached(inf); got != "ab" {
			t.Errorf("the store has %q", got)
		}
	})
}

func TestADividedSourceIsNotForADurable(t *testing.T) {
	_, err := informer.NewFrom(whole{src: informertest.NewSource[configMap]()}, options{Durable: informertest.NewDurable()})
	if err == nil || !strings.Contains(err.Error(), "Options.Durable is set") {
		t.Errorf("over a Durable: %v", err)
	}
}
