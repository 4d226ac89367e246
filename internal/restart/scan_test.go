package restart_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// Tests with stores that are read in pages.

// pagedStore is a Durable whose pages never
// have more than size objects, whatever limit is requested.
type pagedStore struct {
	*informertest.Durable
	size  int
	pages atomic.Int64
	fail  atomic.Bool
	turn  func(after string) // called before each page
}

func (s *pagedStore) Scan(ctx context.Context, after string, limit int) ([]informer.Entry, error) {
	s.pages.Add(1)
	if s.fail.Load() {
		return nil, errors.New("cannot be read")
	}
	if s.turn != nil {
		s.turn(after)
	}
	return s.Durable.Scan(ctx, after, min(limit, s.size))
}

// overPages runs a test in a bubble, with n objects and a store whose pages have size objects.
func overPages(t *testing.T, n, size int, test func(t *testing.T, src *source, paged *pagedStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, informertest.NewSource(numbered(n)...), &pagedStore{Durable: informertest.NewDurable(), size: size})
	})
}

func numbered(n int) []configMap {
	var objs []configMap
	for i := range n {
		objs = append(objs, object(fmt.Sprintf("o%03d", i), "1"))
	}
	return objs
}

func TestADurableIsReadInPages(t *testing.T) {
	overPages(t, 50, 7, func(t *testing.T, src *source, paged *pagedStore) {
		for _, obj := range src.Objects() {
			must(t, paged.Apply(t.Context(), []informer.Change{testkit.Storing(obj)}, ""))
		}
		_, _ = src.Delete(keyOf("o004"))
		_, _ = src.Create(object("new", "1"))
		inf := newInformer(t, src, options{Durable: paged, Indexers: indexers})
		founder, late := &recorder{}, &recorder{}
		addWatcher(t, inf, founder, informer.WatcherOptions{ResyncPeriod: time.Minute})
		informertest.Run(t, inf)
		addWatcher(t, inf, late, informer.WatcherOptions{})
		src.Expire()
		sleepBubble(90 * time.Second)
		for _, r := range []*recorder{founder, late} {
			checkView(t, r, src)
		}
		checkStore(t, inf, src)
		equal(t, "events of the first watcher", len(founder.Events()), 50+2+50)
		equal(t, "events of the watcher that joined", len(late.Events()), 50)
		equal(t, "found by the index", testkit.Count(inf.ByIndex("value", "1")), 50)
		n := 0
		for range inf.All() {
			n++
		}
		equal(t, "All yielded", n, 50)
	})
}

// TestJoiningOverPagesIsExact adds watchers while objects change between any two pages. Some of
// the backlogs merge. The events of each watcher must be consistent and lead to the state of the
// source.
func TestJoiningOverPagesIsExact(t *testing.T) {
	rounds := longOrShort(100, 10)
	for round := range rounds {
		random := rand.New(rand.NewPCG(uint64(round), 7))
		overPages(t, 20, 1+random.IntN(5), func(t *testing.T, src *source, paged *pagedStore) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", round)
				}
			}()
			var mu sync.Mutex
			over := false
			paged.turn = func(string) {
				mu.Lock() // random is not safe for concurrent use
				for range random.IntN(6) {
					if over {
						break
					}
					obj := object(fmt.Sprintf("o%03d", random.IntN(25)), fmt.Sprint(random.IntN(100)))
					if random.IntN(3) == 0 {
						_, _ = src.Delete(keyOf(obj.Name))
					} else {
						src.Apply(obj)
					}
				}
				pause := time.Duration(random.IntN(3)) * time.Millisecond
				mu.Unlock()
				time.Sleep(pause)
			}
			number := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			inf := running(t, src, options{Durable: paged})
			var all []*recorder
			for range 4 {
				for _, opts := range []informer.WatcherOptions{{}, {MaxBacklog: 2}, {MaxBacklog: -1}, {Workers: 3}} {
					r := &recorder{}
					delay := time.Duration(number(3)) * time.Millisecond
					r.Hook = func(context.Context, event) error { time.Sleep(delay); return nil }
					addWatcher(t, inf, r, opts)
					all = append(all, r)
				}
				time.Sleep(time.Duration(number(20)) * time.Millisecond)
			}
			must(t, inf.WaitForSync(within(t, time.Minute)))
			mu.Lock()
			over = true
			mu.Unlock()
			sleepBubble(time.Minute)
			for _, r := range all {
				checkView(t, r, src)
			}
			checkStore(t, inf, src)
		})
	}
}

func TestAJoinWaitsForAStoreThatCannotBeRead(t *testing.T) {
	overPages(t, 10, 3, func(t *testing.T, src *source, paged *pagedStore) {
		var errs errorLog
		inf, early := watched(t, src, options{Durable: paged, ErrorHandler: errs.Handle})
		paged.turn = func(after string) { paged.fail.Store(after == "default/o002") }
		late := &recorder{}
		reg := addWatcher(t, inf, late, informer.WatcherOptions{MaxBacklog: 1})
		sleepBubble(time.Second)
		paged.fail.Store(true)
		sleepBubble(time.Minute)
		src.Apply(object("o001", "2"))
		_, _ = src.Delete(keyOf("o008"))
		sleepBubble(time.Minute)
		checkView(t, early, src) // only the late watcher waits
		equal(t, "synced although a page is missing", channel.Closed(reg.Synced()), false)
		_, err := inf.List("", nil)
		errorSays(t, err, "cannot be read")
		for range inf.All() {
			t.Error("All yielded something")
		}
		paged.turn = nil
		paged.fail.Store(false)
		<-reg.Synced()
		synctest.Wait()
		checkView(t, late, src)
		for _, err := range errs.Take() {
			var serr *informer.StoreError
			if !errors.As(err, &serr) || serr.Op != "scan" {
				t.Errorf("reported %v", err)
			}
		}
	})
}

// The informer retries the read with pauses of up to 5 s. Events must be merged in the meantime,
// so that the log does not keep them all.
func TestAWatcherOfAStoreThatCannotBeReadMerges(t *testing.T) {
	overPages(t, 10, 3, func(t *testing.T, src *source, paged *pagedStore) {
		inf := newInformer(t, src, options{Durable: paged, ErrorHandler: ignore})
		r := &recorder{}
		reg := addWatcher(t, inf, r, informer.WatcherOptions{MaxBacklog: 2, ResyncPeriod: time.Minute})
		informertest.Run(t, inf)
		<-reg.Synced()
		paged.fail.Store(true)
		sleepBubble(2 * time.Minute) // a resync is due, and is retried every few seconds
		for i := range 1000 {
			src.Apply(object("o001", strconv.Itoa(i+2)))
		}
		sleepBubble(10 * time.Millisecond)
		if s := reg.Stats(); s.Pending > 3 || s.Merged < 990 {
			t.Errorf("of 1000 updates of one object, Stats are %+v", s)
		}
		paged.fail.Store(false)
		sleepBubble(time.Minute)
		checkView(t, r, src)
	})
}

func TestAJoinTakesItsTimeOnlyWhileTheStoreIsWritten(t *testing.T) {
	overPages(t, 50, 5, func(t *testing.T, src *source, paged *pagedStore) {
		inf := running(t, src, options{Durable: paged})
		synctest.Wait() // Run may return while the last write of the list still ends
		paged.turn = func(string) { time.Sleep(time.Millisecond) }
		join := func() (took, reading time.Duration) {
			begun, before := time.Now(), paged.pages.Load()
			<-addWatcher(t, inf, &recorder{}, informer.WatcherOptions{}).Synced()
			return time.Since(begun), time.Duration(paged.pages.Load()-before) * time.Millisecond
		}
		if took, reading := join(); took != reading || reading < 10*time.Millisecond {
			t.Errorf("without writes, the join took %v, of which %v to read", took, reading)
		}
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			if took, reading := join(); took < 5*reading {
				t.Errorf("while the store is written, the join took %v, of which %v to read", took, reading)
			}
		}()
		for n := 0; !channel.Closed(joined); n++ {
			src.Apply(object("o000", fmt.Sprint(n)))
			time.Sleep(time.Millisecond / 2)
		}
	})
}

func TestADrainDoesNotNeedTheRestOfAResync(t *testing.T) {
	overPages(t, 10, 3, func(t *testing.T, src *source, paged *pagedStore) {
		inf := newInformer(t, src, options{Durable: paged, ErrorHandler: ignore, DrainTimeout: time.Minute})
		r := &recorder{}
		reg := addWatcher(t, inf, r, informer.WatcherOptions{MaxBacklog: 2, ResyncPeriod: time.Minute})
		var resyncing atomic.Bool
		paged.turn = func(after string) { paged.fail.Store(resyncing.Load() && after != "") }
		stop := informertest.Run(t, inf)
		<-reg.Synced()
		resyncing.Store(true)
		sleepBubble(2 * time.Minute)
		src.Apply(object("o001", "2"))
		_, _ = src.Delete(keyOf("o008"))
		synctest.Wait()
		equal(t, "events that wait for a later page", reg.Stats().Pending, 2)
		stop()
		checkView(t, r, src)
	})
}

func TestEventsThatWaitForPagesAreDrained(t *testing.T) {
	overPages(t, 20, 2, func(t *testing.T, src *source, paged *pagedStore) {
		inf := newInformer(t, src, options{Durable: paged, DrainTimeout: hour})
		stop := informertest.Run(t, inf)
		r := &recorder{Hook: func(context.Context, event) error { time.Sleep(time.Second); return nil }}
		addWatcher(t, inf, r, informer.WatcherOptions{})
		synctest.Wait()
		src.Apply(object("o010", "2"))
		synctest.Wait()
		stop()
		checkView(t, r, src)
		equal(t, "events", len(r.Events()), 21)
	})
}

func TestARemovedWatcherReadsNoFurtherPage(t *testing.T) {
	overPages(t, 20, 2, func(t *testing.T, src *source, paged *pagedStore) {
		inf := running(t, src, options{Durable: paged})
		hold := make(chan struct{})
		reg := addWatcher(t, inf, &recorder{Hook: func(context.Context, event) error { <-hold; return nil }}, informer.WatcherOptions{})
		synctest.Wait()
		before := paged.pages.Load()
		reg.Remove()
		close(hold)
		<-reg.Stopped()
		synctest.Wait()
		equal(t, "further pages", paged.pages.Load()-before, 0)
	})
}

// indexedDurable is a DurableIndexer that reads all objects for each answer.
type indexedDurable struct {
	*durable
	funcs cache.Indexers
}

func (d indexedDurable) GetIndexers() cache.Indexers { return d.funcs }

func (d indexedDurable) AddIndexers(indexers cache.Indexers) error {
	maps.Copy(d.funcs, indexers)
	return nil
}

func (d indexedDurable) ByIndex(ctx context.Context, name, value string) ([]informer.Entry, error) {
	all, err := d.Scan(ctx, "", 10_000)
	return slices.DeleteFunc(all, func(e informer.Entry) bool {
		vals, _ := d.funcs[name](e.Object)
		return !slices.Contains(vals, value)
	}), err
}

func TestADurableWithIndexesOfItsOwnIsNotReadAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(numbered(2000)...), informertest.NewDurable()
		oneRun(t, src, store, options{})
		store = store.Reopen()
		inf := running(t, src, options{Durable: indexedDurable{store, cache.Indexers{}}})
		equal(t, "scans", store.Calls("scan"), 1) // one object, to learn whether the store is empty
		equal(t, "objects, which were not counted", inf.Health().Objects, -1)
		_, _ = src.Create(object("new", "1"))
		synctest.Wait()
		equal(t, "objects after an add", inf.Health().Objects, -1)
		checkStore(t, inf, src)
		equal(t, "objects of the namespace", testkit.Count(inf.List("default", nil)), 2001)
	})
}

// stuckDurable returns the same page each time.
type stuckDurable struct{ *durable }

func (stuckDurable) Scan(context.Context, string, int) ([]informer.Entry, error) {
	return []informer.Entry{testkit.Storing(object("a", "1")).Entry}, nil
}

func TestAScanThatDoesNotAdvanceIsAnError(t *testing.T) {
	inf := newInformer(t, informertest.NewSource[configMap](), options{Durable: stuckDurable{informertest.NewDurable()}})
	for _, namespace := range []string{"", "default"} {
		_, err := inf.List(namespace, nil)
		errorSays(t, err, "default/a")
	}
}

func TestAReaderThatHasSeenEnoughReadsNoFurtherPage(t *testing.T) {
	overPages(t, 20, 2, func(t *testing.T, src *source, paged *pagedStore) {
		inf := running(t, src, options{Durable: paged})
		before := paged.pages.Load()
		for key := range inf.All() {
			if key.Name == "o002" {
				break
			}
		}
		equal(t, "pages", paged.pages.Load()-before, 2) // on which the first three objects are
	})
}

func TestAnIndexThatCannotBeFilledIsNotThere(t *testing.T) {
	overPages(t, 10, 3, func(t *testing.T, src *source, paged *pagedStore) {
		inf := running(t, src, options{Durable: paged})
		view := inf.SharedIndexInformer()
		paged.fail.Store(true)
		errorSays(t, view.AddIndexers(byValue()), "cannot be read")
		paged.fail.Store(false)
		equal(t, "an index that could not be filled exists", view.GetIndexer().GetIndexers()["value"] != nil, false)
		_, err := inf.ByIndex("value", "1")
		errorSays(t, err, "value")
		noError(t, view.AddIndexers(byValue()))
		equal(t, "found by the index", testkit.Count(inf.ByIndex("value", "1")), 10)
	})
}

func TestAReadByAnIndexThatCannotBeFilledGetsAnAnswer(t *testing.T) {
	overPages(t, 10, 3, func(t *testing.T, src *source, paged *pagedStore) {
		inf := running(t, src, options{Durable: paged})
		synctest.Wait()
		reading, dropped := make(chan struct{}), make(chan struct{})
		var pages atomic.Int64
		var find sync.WaitGroup
		paged.turn = func(string) {
			switch pages.Add(1) {
			case 1: // a page for filling the index; its next page fails
				find.Go(func() { equal(t, "found by the index", testkit.Count(inf.ByIndex("value", "1")), 10) })
				<-reading
				paged.fail.Store(true)
			case 2: // a page for ByIndex
				close(reading)
				<-dropped
			}
		}
		errorSays(t, inf.SharedIndexInformer().AddIndexers(byValue()), "cannot be read")
		paged.fail.Store(false)
		close(dropped)
		find.Wait()
	})
}
