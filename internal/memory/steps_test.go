package memory

import (
	"hash/maphash"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
)

// newPausedStore returns a store that calls *between, once, when a write has made the change of the key "first", and not
// yet that of "second", for whose hash it asks then.
func newPausedStore(t *testing.T, between *func()) *Store {
	s, err := newStore(cache.Indexers{"tags": byTags}, func(text string) uint64 {
		if f := *between; f != nil && text == "second" {
			*between = nil
			f()
		}
		return maphash.String(testSeed, text)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAReaderSeesAllOfAWriteOrNothing(t *testing.T) {
	var between func()
	s := newPausedStore(t, &between)
	p, common := s.Part(""), &thing{1, []string{"common"}}
	p.Put("other", common)
	for _, exists := range []bool{false, true} {
		between = func() {
			found, _ := s.Now().ByIndex("tags", "common")
			_, ok := p.Get("first")
			if all := s.Now().Entries().Len(); ok != exists || all != found.Len() || slices.Contains(found.Keys(), "first") != exists {
				t.Errorf("the first object is there: %v, want %v; %d objects, %d of them in the index", ok, exists, all, found.Len())
			}
		}
		s.Apply([]Change{{Part: p, Key: "first", Object: common, Delete: exists}, {Part: p, Key: "second", Object: common, Delete: exists}}, nil)
		if between != nil {
			t.Error("the test has not looked")
		}
	}
}

func TestASnapshotHasAllOfAWriteOrNothing(t *testing.T) {
	var between func()
	s := newPausedStore(t, &between)
	write := func(version int) {
		obj := &thing{version, []string{"common"}}
		s.Apply([]Change{{Part: s.Part(""), Key: "first", Object: obj}, {Part: s.Part(""), Key: "second", Object: obj}}, nil)
	}
	write(1)
	taken := make(chan *Snapshot, 1)
	var taking sync.WaitGroup
	between = func() {
		taking.Go(func() { taken <- s.Snapshot() })
		select {
		case v := <-taken:
			t.Error("a snapshot is taken within a write")
			taken <- v
		case <-time.After(20 * time.Millisecond): // a snapshot that does not wait is taken by now
		}
	}
	write(2)
	taking.Wait()
	v := <-taken
	write(3)
	for _, key := range []string{"first", "second"} {
		if obj, _ := v.Get(key); obj.(*thing).version != 2 {
			t.Errorf("%s has version %d, want 2", key, obj.(*thing).version)
		}
	}
}

func TestASnapshotDoesNotWaitForAWholeList(t *testing.T) {
	const count = 100 * atOnce
	var s *Store
	var begun, taken atomic.Bool
	var taking sync.WaitGroup
	s, err := newStore(nil, func(text string) uint64 {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || !begun.Load() || taken.Load():
		case n == 0:
			taking.Go(func() {
				v := s.Snapshot()
				taken.Store(true)
				if obj, _ := v.Get("old"); obj != "old" || v.Entries().Len() != 1 {
					t.Errorf("a snapshot within a write has %d objects, and %v", v.Entries().Len(), obj)
				}
			})
		case n%atOnce == 0:
			// No channel can stand here: the write holds the lock, which goes to the other goroutine at the end of one of
			// the parts, when that has waited for a millisecond of real time.
			time.Sleep(2 * time.Millisecond)
		}
		return maphash.String(testSeed, text)
	})
	if err != nil {
		t.Fatal(err)
	}
	p := s.Part("")
	p.Put("old", "old")
	changes := []Change{{Part: p, Key: "old", Object: "new"}}
	for n := range count {
		changes = append(changes, Change{Part: p, Key: strconv.Itoa(n), Object: n})
	}
	begun.Store(true)
	s.Apply(changes, nil)
	if !taken.Load() {
		t.Error("no snapshot was taken before the write had ended")
	}
	taking.Wait()
}

func TestALongListGivesWay(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := newTestStore(t, "real", nil)
	for n := range 3 * givesWay {
		s.Part("").Put(strconv.Itoa(n), n)
	}
	var wg sync.WaitGroup
	var seen, ran atomic.Int64
	wg.Go(func() { ran.Store(seen.Load()) })
	for range s.Snapshot().Entries().All() {
		seen.Add(1)
	}
	if wg.Wait(); ran.Load() == 3*givesWay {
		t.Error("no other goroutine ran before the list had ended")
	}
}
