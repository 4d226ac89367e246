package extremes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var sourceTrials = map[string]extremes.Trial{
	"informertest.Source.Fail(times)":       extremes.Number("", inBubble(failsSoOften)),
	"informertest.Faults.ListDelay":         extremes.Field("", nil, inBubble(listsSlowly)),
	"informertest.Source.WaitForWatches(n)": extremes.Number("", inBubble(waitsForWatches)),
	"informertest.Source.ListWithContext(options).Limit": extremes.Number("", inBubble(func(t *testing.T, n int64) error {
		return answers(t, metav1.ListOptions{Limit: n})
	})),
	"informertest.Source.ListWithContext(options).TimeoutSeconds": extremes.Number("", inBubble(func(t *testing.T, n int64) error {
		return answers(t, metav1.ListOptions{TimeoutSeconds: &n})
	})),
	"informertest.Source.WatchWithContext(options).Limit": extremes.Number("", inBubble(func(t *testing.T, n int64) error {
		return streams(t, metav1.ListOptions{Limit: n})
	})),
	"informertest.Source.WatchWithContext(options).TimeoutSeconds": extremes.Number("", inBubble(func(t *testing.T, n int64) error {
		return streams(t, metav1.ListOptions{TimeoutSeconds: &n})
	})),
}

var storeTrials = map[string]extremes.Trial{
	"informertest.StoreFaults.Delay(d)": extremes.Number("", inBubble(func(t *testing.T, d time.Duration) error {
		s := informertest.NewStore(nil)
		s.Delay(d)
		begun := time.Now()
		_, _, err := s.GetByKey("a")
		if took := time.Since(begun); took > 0 != (d > 0) || took < min(hour, d) { // a bubble's time ends before d is over
			t.Errorf("an operation took %v, want %v", took, max(0, d))
		}
		return err
	})),
	"informertest.Durable.Delay(d)": extremes.Number("", inBubble(func(t *testing.T, d time.Duration) error {
		s := informertest.NewDurable()
		s.Delay(d)
		_, err := s.Resume(testkit.Within(t, hour))
		if d > 0 && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an operation that takes %v returns %v after an hour", d, err)
		}
		if d > 0 {
			return nil
		}
		return err
	})),
	"informertest.StoreFaults.FailRandomly(probability)": extremes.Number("max -1 min inf -inf nan", inBubble(func(t *testing.T, p float64) error {
		s := informertest.NewStore(nil)
		if err := panics(func() { s.FailRandomly(1, p) }); err != nil {
			return err
		}
		return s.Add(object("a", "1"))
	})),
	"informertest.Durable.FailRandomly(probability)": extremes.Number("max -1 min inf -inf nan", inBubble(func(t *testing.T, p float64) error {
		s := informertest.NewDurable()
		if err := panics(func() { s.FailRandomly(1, p) }); err != nil {
			return err
		}
		return put(t, s, object("a", "1"))
	})),
	"informertest.StoreFaults.FailRandomly(seed)": extremes.Number("", inBubble(func(t *testing.T, seed uint64) error {
		return repeats(t, seed, func() (faulty, func() error) {
			s := informertest.NewStore(nil)
			return s, s.Resync
		})
	})),
	"informertest.Durable.FailRandomly(seed)": extremes.Number("", inBubble(func(t *testing.T, seed uint64) error {
		return repeats(t, seed, func() (faulty, func() error) {
			s := informertest.NewDurable()
			return s, func() error { _, err := s.Resume(t.Context()); return err }
		})
	})),
	"informertest.Durable.LoseOnCrash(n)": extremes.Number("", inBubble(losesOnCrash)),
	"informertest.Durable.Scan(limit)": extremes.Number("0 -1 min", inBubble(func(t *testing.T, limit int) error {
		s := informertest.NewDurable()
		if err := put(t, s, object("a", "1"), object("b", "1")); err != nil {
			t.Fatal(err)
		}
		objs, err := s.Scan(t.Context(), "", limit)
		if err == nil && len(objs) != 2 {
			t.Errorf("it returned %d of 2 objects", len(objs))
		}
		return err
	})),
}

// failsSoOften checks how many of 100 requests fail.
func failsSoOften(t *testing.T, times int) error {
	src := informertest.NewSource(object("a", "1"))
	src.Fail("list", errors.New("no"), times)
	failed := 0
	for range 100 {
		if _, err := src.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			failed++
		}
	}
	if want := min(100, uint(times)); uint(failed) != want {
		t.Errorf("%d of 100 requests have failed, want %d", failed, want)
	}
	src.Heal()
	_, err := src.ListWithContext(t.Context(), metav1.ListOptions{})
	return err
}

// listsSlowly checks that a LIST takes no time, or an hour at least.
func listsSlowly(t *testing.T, faults informertest.Faults) error {
	d := faults.ListDelay
	src := informertest.NewSource(object("a", "1"))
	src.SetFaults(faults)
	begun := time.Now()
	_, err := src.ListWithContext(testkit.Within(t, hour), metav1.ListOptions{})
	if took := time.Since(begun); took != min(hour, max(0, d)) {
		t.Errorf("a LIST took %v", took)
	}
	if d > hour && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func waitsForWatches(t *testing.T, n int) error {
	err := informertest.NewSource(object("a", "1")).WaitForWatches(testkit.Within(t, hour), n)
	if n != 0 && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// answers checks that a LIST has all objects.
func answers(t *testing.T, opts metav1.ListOptions) error {
	list, err := informertest.NewSource(object("a", "1"), object("b", "1")).ListWithContext(t.Context(), opts)
	if err == nil && len(list.(*metav1.List).Items) != 2 {
		t.Errorf("the list has %d of 2 objects", len(list.(*metav1.List).Items))
	}
	return err
}

// streams checks that a watch is open for a minute at least, and delivers a change after that.
func streams(t *testing.T, opts metav1.ListOptions) error {
	src := informertest.NewSource(object("a", "1"))
	opts.ResourceVersion = src.ResourceVersion()
	w, err := src.WatchWithContext(t.Context(), opts)
	if err != nil {
		return err
	}
	defer w.Stop()
	time.Sleep(time.Minute) // of a bubble
	src.Apply(object("a", "2"))
	if e, open := <-w.ResultChan(); !open || e.Type != watch.Modified {
		t.Errorf("a watch delivers %v, and is open: %v", e, open)
	}
	return nil
}

// faulty is a store that fails randomly.
type faulty interface {
	FailRandomly(seed uint64, probability float64)
}

// put stores objects.
func put(t *testing.T, s *informertest.Durable, objs ...configMap) error {
	var changes []informer.Change
	for _, obj := range objs {
		changes = append(changes, testkit.Storing(obj))
	}
	return s.Apply(t.Context(), changes, "")
}

// repeats checks that a seed makes the same of 100 operations fail each time, and not all.
func repeats(t *testing.T, seed uint64, newStore func() (s faulty, operate func() error)) error {
	var runs [2][]bool
	for n := range runs {
		s, operate := newStore()
		s.FailRandomly(seed, 0.5)
		for range 100 {
			runs[n] = append(runs[n], operate() != nil)
		}
	}
	if !slices.Equal(runs[0], runs[1]) || !slices.Contains(runs[0], true) || !slices.Contains(runs[0], false) {
		t.Errorf("the operations that failed are %v, and then %v", runs[0], runs[1])
	}
	return nil
}

// losesOnCrash checks that a crash undoes all writes or none.
func losesOnCrash(t *testing.T, n int) error {
	s := informertest.NewDurable()
	s.LoseOnCrash(n)
	for i := range 10 {
		if err := put(t, s, object(fmt.Sprint("o", i), "")); err != nil {
			return err
		}
	}
	want := 10
	if n > 0 {
		want = 0
	}
	if got := len(testkit.Stored(s.Reopen())); got != want {
		t.Errorf("after a crash %d objects are left, want %d", got, want)
	}
	return nil
}
