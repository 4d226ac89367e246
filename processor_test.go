package informer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/channel"
)

// TestNothingIsAskedOfTheSourceBeforeEveryListenerIsLive tries the start-up deadlock that this
// library exists to rule out: events are distributed while listeners are added whose
// goroutines do not run yet.
func TestNothingIsAskedOfTheSourceBeforeEveryListenerIsLive(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		hold := make(chan struct{})
		informer.HoldListeners(inf, hold)
		var before, during recorder
		addWatcher(t, inf, &before, informer.WatcherOptions{})
		start(t, inf)
		time.Sleep(time.Hour)
		addWatcher(t, inf, &during, informer.WatcherOptions{})
		sleepBubble(time.Hour)
		equal(t, "startedCh is closed while goroutines are held back", channel.Closed(informer.StartedCh(inf)), false)
		equal(t, "requests while goroutines are held back", len(src.Requests()), 0)
		close(hold)
		<-informer.StartedCh(inf)
		before.Expect(t, "added default/a")
		during.Expect(t, "added default/a")
		equal(t, "there were requests", len(src.Requests()) > 0, true)
	})
}

// TestStartUpUnderFire runs on real goroutines, because a bubble would make their order more
// regular.
func TestStartUpUnderFire(t *testing.T) {
	rounds := longOrShort(500, 20)
	for name, queue := range queues {
		t.Run(name, func(t *testing.T) {
			for round := range rounds / 2 {
				startUpUnderFire(t, queue, uint64(round))
				if t.Failed() {
					t.Fatalf("in round %d", round)
				}
			}
		})
	}
}

func startUpUnderFire(t *testing.T, queue informer.QueueKind, seed uint64) {
	const events, objects, watchers = 2000, 40, 6
	src := informertest.NewSource[configMap]()
	inf := newInformer(t, src, options{Queue: queue})
	hold := make(chan struct{})
	informer.HoldListeners(inf, hold)

	var all sync.WaitGroup
	all.Go(func() { // the source delivers events already
		for n := range events {
			name := fmt.Sprint("o", n%objects)
			if n%11 == 10 {
				_, _ = src.Delete(keyOf(name))
			} else {
				src.Apply(object(name, fmt.Sprint(n)))
			}
		}
		src.Apply(object("last", "")) // nothing overtakes this event
	})
	var complete sync.WaitGroup
	complete.Add(watchers)
	stays, leaves := make([]recorder, watchers), make([]recorder, 4)
	for i := range stays {
		stays[i].Hook = func(_ context.Context, e event) error {
			if e.Key() == keyOf("last") {
				complete.Done()
			}
			return nil
		}
	}
	// add returns nil if the informer has stopped.
	add := func(r *recorder) *informer.Registration {
		reg, err := inf.AddWatcher(r, informer.WatcherOptions{MaxBacklog: -1})
		if err != nil && !errors.Is(err, informer.ErrStopped) {
			t.Error(err)
		}
		return reg
	}
	regs := make([]*informer.Registration, watchers)
	for i := range stays[:watchers/2] {
		regs[i] = add(&stays[i])
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all.Go(func() { noError(t, inf.Run(ctx)) })
	var joined sync.WaitGroup
	for i := watchers / 2; i < watchers; i++ {
		joined.Go(func() { regs[i] = add(&stays[i]) })
	}
	for i := range leaves { // these watchers come and go in the meantime
		joined.Go(func() {
			if reg := add(&leaves[i]); reg != nil {
				reg.Remove()
				<-reg.Stopped()
			}
		})
	}
	stopEarly := rand.New(rand.NewPCG(seed, 7)).IntN(2) == 0
	if stopEarly {
		all.Go(cancel)
	}
	close(hold)
	joined.Wait()
	if !stopEarly {
		mustSync(t, inf)
		complete.Wait()
		cancel()
	}
	all.Wait() // Run has returned
	for i, reg := range regs {
		if reg != nil {
			<-reg.Stopped()
		}
		if !stopEarly {
			checkView(t, &stays[i], src)
		} else if err := stays[i].Err(); err != nil {
			t.Error(err)
		}
	}
	for i := range leaves {
		noError(t, leaves[i].Err())
	}
}

// An object leaves while its events wait for a watcher. They are not delivered any more, also if it comes back.
func TestEventsOfObjectsThatHaveLeftAreNotDelivered(t *testing.T) {
	forever := func(int, error) (time.Duration, bool) { return time.Minute, true }
	for name, w := range map[string]informer.WatcherOptions{
		"in the log":       {},
		"never merged":     {MaxBacklog: -1},
		"merged":           {MaxBacklog: 1},
		"with workers":     {Workers: 2},
		"with retries":     {Retry: forever},
		"merged and again": {MaxBacklog: 1, Retry: forever},
	} {
		for _, when := range []string{"in its first state", "after it", "in a resync", "while it joins"} {
			for _, lives := range []bool{false, true} {
				inBubble(t, fmt.Sprintf("%s/%s/%t", name, when, lives), func(t *testing.T) { leaveWhileAWatcherIsBlocked(t, w, when, lives) })
			}
		}
	}
}

func leaveWhileAWatcherIsBlocked(t *testing.T, w informer.WatcherOptions, when string, lives bool) {
	src := informertest.NewSource(letters("abx")...)
	d := newDivided(src, "abxyz")
	opts := options{ErrorHandler: quiet}
	store := &gatedStore{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	if when == "while it joins" {
		opts.Store = store
	}
	inf := newInformer(t, d, opts)
	start(t, inf)
	sleepBubble(time.Second)
	var holds atomic.Bool // each call waits for blocked, except those of y, which wait for last
	blocked, last := make(chan struct{}), make(chan struct{})
	switch when {
	case "in its first state":
		holds.Store(true)
	case "in a resync":
		w.ResyncPeriod = time.Second
	case "while it joins":
		store.gate = blocked
	}
	r := recorder{Hook: func(_ context.Context, e event) error {
		switch name := e.Object().Name; {
		case name == "y":
			<-last
		case holds.Load():
			<-blocked
			if name == "a" && w.Retry != nil {
				return errors.New("once more")
			}
		}
		return nil
	}}
	reg := addWatcher(t, inf, &r, w)
	time.Sleep(500 * time.Millisecond)
	holds.Store(true)
	if when == "after it" || when == "while it joins" {
		for _, name := range []string{"a", "b", "x"} {
			src.Apply(object(name, "2"))
		}
	}
	time.Sleep(time.Second)
	begun := len(r.Events()) // a call that is under way is not taken back
	d.turn("abyz")
	time.Sleep(time.Second)
	remove(t, src, "x")
	if lives {
		src.Apply(object("x", "3"))
	}
	src.Apply(object("y", "1"))
	d.turn("abxyz")
	time.Sleep(time.Second)
	holds.Store(false)
	close(blocked)
	sleepBubble(200 * time.Millisecond)
	equal(t, "calls under way", inf.Health().Watchers[0].Calls, []string{"default/y"})
	close(last)
	synctest.Wait()
	var events, ofX []string
	for _, e := range r.Events()[begun:] {
		events = append(events, fmt.Sprint(e.Type, " ", e.Object().Name, " ", e.Object().Data["value"]))
		if told := events[len(events)-1]; e.Object().Name == "x" && told != "updated x 3" { // which a resync may repeat
			ofX = append(ofX, told)
		}
	}
	if got, want := strings.Join(ofX, ", "), map[bool]string{true: "added x 3"}[lives]; got != want {
		t.Errorf("got %q of x, want %q; all: %q", got, want, events)
	}
	if !slices.Contains(events, "added y 1") {
		t.Errorf("y is not delivered: %q", events)
	}
	if s := reg.Stats(); !s.Synced || w.Retry == nil && s.Pending != 0 {
		t.Errorf("in the end: %+v", s)
	}
}

func TestTheEventsOfAnObjectThatTheStoreKeepsAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, store := newDivided(informertest.NewSource(letters("ax")...), "ax"), informertest.NewStore(nil)
		inf := newInformer(t, d, options{Store: store, ErrorHandler: quiet})
		blocked := make(chan struct{})
		r := recorder{Hook: func(context.Context, event) error { <-blocked; return nil }}
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		start(t, inf)
		time.Sleep(time.Second)
		store.Fail(failOn("delete", informer.ErrPermanent))
		d.turn("")
		time.Sleep(time.Second)
		d.turn("ax")
		time.Sleep(time.Second)
		close(blocked)
		r.Expect(t, "added default/a", "added default/x")
		synctest.Wait()
		r.Expect(t)
	})
}
