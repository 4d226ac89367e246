package index

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// slowStore is a store with one object, whose reads take a while, or until their ctx ends.
type slowStore struct {
	cache.Store
	mu     sync.Mutex
	takes  []time.Duration // by read; the last one is for all further reads; negative: until ctx ends
	err    error
	quiet  bool // nothing is written
	begun  []time.Time
	within int // reads that are under way
	most   int
}

// newSlow returns a store and its pages.
func newSlow(takes ...time.Duration) (*slowStore, *Pages) {
	s := &slowStore{Store: newPlain(), takes: takes}
	return s, NewPages(scanOf(s), s.writes)
}

// writes says that a write has begun, unless the store is quiet.
func (s *slowStore) writes() (done, begun int64) {
	if s.quiet {
		return 1, 1
	}
	return 1, 2
}

// nameAfter returns the name of the object on the page after a key.
func nameAfter(after string) string {
	if after == "" {
		return "a"
	}
	return "z"
}

// Scan returns an object whose value is the time at which the read began.
func (s *slowStore) Scan(ctx context.Context, after string, _ int) (page object.Entries, err error) {
	s.mu.Lock()
	takes := s.takes[min(len(s.begun), len(s.takes)-1)]
	now := time.Now()
	s.begun = append(s.begun, now)
	s.within++
	s.most = max(s.most, s.within)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.within--; s.mu.Unlock() }()
	if takes < 0 {
		<-ctx.Done()
		return page, ctx.Err()
	}
	time.Sleep(takes)
	obj := configured(nameAfter(after), now.Format(time.RFC3339Nano))
	page.Append("default/"+obj.Name, obj)
	return page, s.err
}

// readOnce calls Next, and checks that the page is that after the key and not older than the call.
func readOnce(t *testing.T, p *Pages, after string) {
	called := time.Now()
	objs, last, err := p.Next(t.Context(), t.Context().Done(), after)
	if err != nil || objs.Len() != 1 {
		t.Errorf("%d objects, %v", objs.Len(), err)
		return
	}
	obj := objs.At(0).Object.(configMap)
	if began, _ := time.Parse(time.RFC3339Nano, obj.Data["value"]); began.Before(called) {
		t.Errorf("the read began %v before the call", called.Sub(began))
	}
	if obj.Name != nameAfter(after) || last != "default/"+obj.Name {
		t.Errorf("after %q: a page with %s that ends with %q", after, obj.Name, last)
	}
}

func TestReadersThatComeTogetherShareAPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSlow(10 * time.Millisecond)
		var readers sync.WaitGroup
		for n := range 100 {
			readers.Go(func() {
				time.Sleep(time.Duration(n%2) * time.Millisecond) // half of them come while a read is under way
				readOnce(t, p, "")
			})
		}
		readers.Wait()
		if len(s.begun) != 2 || s.most != 1 {
			t.Errorf("%d reads, %d at a time", len(s.begun), s.most)
		}
	})
}

func TestPagesAfterDifferentKeysAreDifferentReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSlow(0)
		var readers sync.WaitGroup
		for n := range 100 {
			readers.Go(func() { readOnce(t, p, []string{"", "default/n"}[n%2]) })
		}
		readers.Wait()
		if len(s.begun) < 2 {
			t.Errorf("%d reads", len(s.begun))
		}
	})
}

func TestReadsTakeASmallPartOfTheTime(t *testing.T) {
	for takes, rest := range map[time.Duration]time.Duration{
		0:                      0,
		time.Millisecond:       9 * time.Millisecond,
		90 * time.Millisecond:  longestRest,
		900 * time.Millisecond: longestRest,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, p := newSlow(takes)
			for range 3 {
				readOnce(t, p, "")
			}
			for n := range 2 {
				if got := s.begun[n+1].Sub(s.begun[n]); got != takes+rest {
					t.Errorf("reads of %v: %v from one to the next, not %v", takes, got, takes+rest)
				}
			}
			time.Sleep(time.Hour)
			called := time.Now()
			if readOnce(t, p, ""); time.Since(called) != takes {
				t.Errorf("a read of %v after a long time took %v", takes, time.Since(called))
			}
		})
	}
}

func TestReadsOfAnUnwrittenStoreNeedNoRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSlow(time.Millisecond)
		s.quiet = true
		called := time.Now()
		for range 100 {
			readOnce(t, p, "")
		}
		if took := time.Since(called); took != 100*time.Millisecond {
			t.Errorf("100 reads of 1ms took %v", took)
		}
	})
}

func TestACrowdOfReadersAlsoRestsIfAWriteCameBetweenTheReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSlow(time.Millisecond)
		var written atomic.Int64
		p := NewPages(scanOf(s), func() (done, begun int64) { return written.Load(), written.Load() })
		readOnce(t, p, "")
		written.Add(1)
		readOnce(t, p, "")
		written.Add(1)
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() { readOnce(t, p, "") })
			synctest.Wait() // the second one comes while the first one reads
		}
		readers.Wait()
		for n, want := range []time.Duration{time.Millisecond, time.Millisecond, share * time.Millisecond} {
			if got := s.begun[n+1].Sub(s.begun[n]); got != want {
				t.Errorf("%v from read %d to the next, not %v", got, n+1, want)
			}
		}
	})
}

func TestAPageForWhichNobodyWaitsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := newSlow(time.Second/2, 0)
		var readers sync.WaitGroup
		readers.Go(func() { readOnce(t, p, "") })
		synctest.Wait() // the others wait for their turn
		ctx, cancel := context.WithCancel(t.Context())
		for n := range 10 {
			after := fmt.Sprint("default/", n%9)
			readers.Go(func() { _, _, _ = p.Next(ctx, ctx.Done(), after) })
		}
		readers.Go(func() { readOnce(t, p, "default/0") })
		synctest.Wait()
		cancel()
		synctest.Wait()
		p.mu.Lock()
		if len(p.waiting) != 1 || p.waiting["default/0"] == nil {
			t.Errorf("%d pages wait, also for readers that have gone", len(p.waiting))
		}
		p.mu.Unlock()
		readers.Wait()
	})
}

func TestAReadThatHangsDelaysOthersForASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := newSlow(-1, 0)
		ctx, cancel := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		readers.Go(func() {
			if _, _, err := p.Next(ctx, ctx.Done(), ""); !errors.Is(err, context.Canceled) {
				t.Errorf("the read that hung: %v", err)
			}
		})
		synctest.Wait()
		for range 10 {
			called := time.Now()
			if readOnce(t, p, ""); time.Since(called) > patience {
				t.Errorf("a reader waited for %v", time.Since(called))
			}
		}
		cancel()
		readers.Wait()
		time.Sleep(longestRest)
		called := time.Now()
		if readOnce(t, p, ""); time.Since(called) != 0 {
			t.Errorf("after that, a reader waited for %v", time.Since(called))
		}
	})
}

// The reader that makes the shared read is stopped after a minute, or before the others have left it.
func TestAReaderLeavesASharedReadThatHangs(t *testing.T) {
	for _, stopped := range []time.Duration{time.Minute, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			_, p := newSlow(time.Millisecond, -1, 0)
			var readers sync.WaitGroup
			readers.Go(func() { readOnce(t, p, "") })
			synctest.Wait() // the others come during the first read, and share the second
			ctx, cancel := context.WithCancel(t.Context())
			readers.Go(func() {
				if _, _, err := p.Next(ctx, ctx.Done(), ""); !errors.Is(err, context.Canceled) {
					t.Errorf("the reader that is stopped: %v", err)
				}
			})
			synctest.Wait() // it waits for the turn first, and so it makes the second read
			called := time.Now()
			for range 10 {
				readers.Go(func() {
					if readOnce(t, p, ""); time.Since(called) > 3*patience {
						t.Errorf("a reader waited for %v", time.Since(called))
					}
				})
			}
			time.Sleep(stopped)
			cancel()
			readers.Wait()
		})
	}
}

func TestAReaderNeedNotWaitForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSlow(time.Hour)
		var readers sync.WaitGroup
		readers.Go(func() { readOnce(t, p, "") })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		called := time.Now()
		if _, _, err := p.Next(ctx, ctx.Done(), ""); !errors.Is(err, context.Canceled) || time.Since(called) != patience/2 {
			t.Errorf("after %v: %v", time.Since(called), err)
		}
		readers.Wait()
		if _, _, err := p.Next(ctx, ctx.Done(), ""); !errors.Is(err, context.Canceled) || len(s.begun) != 1 {
			t.Errorf("with a ctx that has ended: %v, %d reads", err, len(s.begun))
		}
	})
}

func TestReadersShareAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSlow(time.Millisecond)
		s.err = errors.New("locked")
		var readers sync.WaitGroup
		for range 10 {
			readers.Go(func() {
				if _, _, err := p.Next(t.Context(), t.Context().Done(), ""); !errors.Is(err, s.err) {
					t.Errorf("the error: %v", err)
				}
			})
		}
		readers.Wait()
		if len(s.begun) > 2 {
			t.Errorf("%d reads", len(s.begun))
		}
	})
}
