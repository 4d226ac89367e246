package informer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
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
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case <-informer.StartedCh(inf):
			t.Error("startedCh is closed while the listeners' goroutines are held back")
		default:
		}
		if requests := src.Requests(); len(requests) > 0 {
			t.Errorf("requests while the listeners' goroutines are held back: %v", requests)
		}
		close(hold)
		<-informer.StartedCh(inf)
		before.Expect(t, "added default/a")
		during.Expect(t, "added default/a")
		if len(src.Requests()) == 0 {
			t.Error("events without a request")
		}
	})
}

func TestStartedChIsClosedAtOnceWithoutListeners(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		inf, _ := startWith(t, queue)
		<-informer.StartedCh(inf)
	})
}

// TestStartUpUnderFire runs on real goroutines, because a bubble would make their order more
// regular.
func TestStartUpUnderFire(t *testing.T) {
	rounds := 500
	if testing.Short() {
		rounds = 20
	}
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
	r := rand.New(rand.NewPCG(seed, 7))
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
	stays := make([]recorder, watchers)
	var complete sync.WaitGroup
	complete.Add(watchers)
	for i := range stays {
		stays[i].Hook = func(_ context.Context, e event) error {
			if e.Key() == keyOf("last") {
				complete.Done()
			}
			return nil
		}
	}
	regs := make([]*informer.Registration, watchers)
	for i := range stays[:watchers/2] {
		regs[i] = addWatcher(t, inf, &stays[i], informer.WatcherOptions{MaxBacklog: -1})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all.Go(func() {
		if err := inf.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	var joined sync.WaitGroup
	for i := watchers / 2; i < watchers; i++ {
		joined.Go(func() { regs[i], _ = inf.AddWatcher(&stays[i], informer.WatcherOptions{MaxBacklog: -1}) })
	}
	leaves := make([]recorder, 4)
	for i := range leaves { // these watchers come and go in the meantime
		joined.Go(func() {
			reg, err := inf.AddWatcher(&leaves[i], informer.WatcherOptions{MaxBacklog: -1})
			if err == nil {
				reg.Remove()
				<-reg.Stopped()
			}
		})
	}
	stopEarly := r.IntN(2) == 0
	if stopEarly {
		all.Go(cancel)
	}
	close(hold)
	joined.Wait()

	if !stopEarly {
		if err := inf.WaitForSync(ctx); err != nil {
			t.Fatal(err)
		}
		complete.Wait()
		cancel()
	}
	all.Wait() // Run has returned
	for i, reg := range regs {
		if reg == nil {
			continue // this watcher came after the stop
		}
		<-reg.Stopped()
		if err := stays[i].Err(); err != nil {
			t.Error(err)
		}
		if !stopEarly {
			checkView(t, &stays[i], src)
		}
	}
	for i := range leaves {
		if err := leaves[i].Err(); err != nil {
			t.Error(err)
		}
	}
}
