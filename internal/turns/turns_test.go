package turns_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/customcacheinformer/informer/internal/turns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func acquire(t *testing.T, l *turns.Limit) *turns.Turn {
	t.Helper()
	turn, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// queue has n goroutines wait for a turn, one after the other. It returns those that got one, in that order.
func queue(t *testing.T, l *turns.Limit, n int) (got func() []int, turnOf func(int) *turns.Turn) {
	var mu sync.Mutex
	var order []int
	all := map[int]*turns.Turn{}
	for i := range n {
		go func() {
			turn, err := l.Acquire(t.Context())
			if err != nil {
				return // at the end of the test
			}
			mu.Lock()
			defer mu.Unlock()
			order, all[i] = append(order, i), turn
		}()
		synctest.Wait()
	}
	return func() []int { synctest.Wait(); mu.Lock(); defer mu.Unlock(); return slices.Clone(order) },
		func(i int) *turns.Turn { mu.Lock(); defer mu.Unlock(); return all[i] }
}

func TestTurnsComeInTheOrderInWhichTheyWereAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, turn := queue(t, turns.New(2), 6)
		for i, want := range [][]int{{0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}} {
			if order := got(); !slices.Equal(order, want) {
				t.Fatalf("after %d releases, %v had a turn, want %v", i, order, want)
			}
			turn(i).Release()
			turn(i).Release() // the second does nothing
		}
	})
}

// pause lets d of a bubble's time pass, without testkit.SleepBubble: two goroutines may do that at once.
func pause(d time.Duration) { <-time.After(d) }

func TestATurnEndsWithoutProgress(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		does func(*turns.Turn)
		ends time.Duration
	}{
		"nothing":         {func(*turns.Turn) {}, 5 * s},
		"progress at 4 s": {func(turn *turns.Turn) { pause(4 * s); turn.Progress() }, 9 * s},
		"progress at 4, 8 and 12 s": {func(turn *turns.Turn) {
			for range 3 {
				pause(4 * s)
				turn.Progress()
			}
		}, 17 * s},
		"a minute from 1 s on":   {func(turn *turns.Turn) { pause(s); turn.Allow(time.Minute) }, 61 * s},
		"and progress at 20 s":   {func(turn *turns.Turn) { turn.Allow(time.Minute); pause(20 * s); turn.Progress() }, 25 * s},
		"progress after the end": {func(turn *turns.Turn) { pause(6 * s); turn.Progress(); turn.Allow(time.Minute) }, 5 * s},
		"shorter after the end":  {func(turn *turns.Turn) { pause(6 * s); turn.Allow(time.Minute); turn.Progress() }, 5 * s},
		"a release":              {func(turn *turns.Turn) { pause(2 * s); turn.Release(); turn.Allow(time.Minute); turn.Progress() }, 2 * s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, begun := turns.New(1), time.Now()
				first := acquire(t, l)
				go tc.does(first)
				second := acquire(t, l)
				if took := time.Since(begun); took != tc.ends {
					t.Errorf("the next turn came after %v, want %v", took, tc.ends)
				}
				pause(2 * s)
				first.Release() // does not end the second
				ctx, cancel := context.WithTimeout(t.Context(), s)
				defer cancel()
				if _, err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a third turn at the same time as the second: %v", err)
				}
				second.Release()
			})
		})
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begun := turns.New(1), time.Now()
		first := acquire(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		got, turn := queue(t, l, 1)
		if first.Release(); len(got()) != 1 {
			t.Fatal("the turn is lost")
		}
		turn(0).Release()
		acquire(t, l).Release()
	})
}

func TestWithoutALimitNoListWaits(t *testing.T) {
	for _, n := range []int{0, -1, math.MinInt} {
		for range 3 {
			if turn, err := turns.New(n).Acquire(t.Context()); turn != nil || err != nil {
				t.Errorf("New(%d): %v, %v", n, turn, err)
			}
		}
	}
	var none *turns.Turn
	none.Progress()
	none.Allow(time.Second)
	none.Release()
	l := turns.New(math.MaxInt)
	acquire(t, l).Release()
}

// No turn is lost or made, whichever caller stops to wait, and when.
func TestTurnsAreNeitherLostNorMade(t *testing.T) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l, at := turns.New(n), atomic.Int64{}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for j := range 300 {
						ctx, cancel := context.WithCancel(t.Context())
						if (i+j)%3 == 0 {
							all.Go(cancel)
						}
						if turn, err := l.Acquire(ctx); err == nil {
							if now := at.Add(1); now > int64(n) {
								t.Errorf("%d turns at a time", now)
							}
							turn.Progress()
							at.Add(-1)
							turn.Release()
						}
						cancel()
					}
				})
			}
			all.Wait()
			for range n { // none is lost
				defer acquire(t, l).Release()
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := l.Acquire(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("one turn more: %v", err)
			}
		})
	}
}
