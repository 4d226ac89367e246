package retry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var errLocked = errors.New("locked")

// failing returns an operation that fails n times, and then succeeds.
func failing(n int) (try func() error, attempts *int) {
	attempts = new(int)
	return func() error {
		if *attempts++; *attempts <= n {
			return errLocked
		}
		return nil
	}, attempts
}

func TestDoMakesOneAttemptIfThatSucceeds(t *testing.T) {
	try, attempts := failing(0)
	err := Do(try, func(Failure) error { t.Error("it rests"); return nil })
	if err != nil || *attempts != 1 {
		t.Errorf("%d attempts, %v", *attempts, err)
	}
}

func TestDoRepeatsAnOperationUntilItSucceeds(t *testing.T) {
	try, attempts := failing(3)
	var counts []int
	err := Do(try, func(f Failure) error {
		counts = append(counts, f.Count)
		if !errors.Is(f.Err, errLocked) || *attempts != f.Count {
			t.Errorf("failure %d after %d attempts: %v", f.Count, *attempts, f.Err)
		}
		return nil
	})
	if err != nil || *attempts != 4 || !slices.Equal(counts, []int{1, 2, 3}) {
		t.Errorf("%d attempts, failures %v, %v", *attempts, counts, err)
	}
}

func TestDoGivesUpWithTheErrorOfRest(t *testing.T) {
	try, attempts := failing(9)
	enough := errors.New("enough")
	err := Do(try, func(f Failure) error {
		if f.Count == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || *attempts != 2 {
		t.Errorf("%d attempts, %v", *attempts, err)
	}
}

func TestAfterCountsTheAttemptOfItsCaller(t *testing.T) {
	try, attempts := failing(1)
	var counts []int
	err := After(errLocked, try, func(f Failure) error { counts = append(counts, f.Count); return nil })
	if err != nil || *attempts != 2 || !slices.Equal(counts, []int{1, 2}) {
		t.Errorf("%d attempts, failures %v, %v", *attempts, counts, err)
	}
	try, attempts = failing(1)
	if err := After(nil, try, nil); err != nil || *attempts != 0 {
		t.Errorf("after a success: %d attempts, %v", *attempts, err)
	}
}

func TestPausesGrowFromTenMillisecondsToFiveSeconds(t *testing.T) {
	for range 100 { // the jitter differs
		try, _ := failing(40)
		shortest := 10 * time.Millisecond
		_ = Do(try, func(f Failure) error {
			if f.Pause < shortest || f.Pause > shortest*3/2 {
				t.Fatalf("the pause after failure %d is %v, want %v to %v", f.Count, f.Pause, shortest, shortest*3/2)
			}
			shortest = min(2*shortest, backoff.Cap)
			return nil
		})
	}
	if longest := backoff.Cap * 3 / 2; longest.Round(time.Millisecond) != 5*time.Second {
		t.Errorf("the longest pause is %v", longest)
	}
}

func TestSleepEndsWithThePauseOrTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// A writer makes the first attempt itself, so that a store which works costs no more than
// the call.
func TestASuccessCostsNoAllocation(t *testing.T) {
	try, _ := failing(0)
	rest := func(Failure) error { return nil }
	if n := testing.AllocsPerRun(100, func() { _ = Do(try, rest) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
