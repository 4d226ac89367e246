package extremes_test

import (
	"context"
	"errors"
	"fmt"
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
	"informertest.Source.Fail(times)": number(func(t *testing.T, times int) error {
		return serves(t, metav1.ListOptions{}, func(src *source) { src.Fail("list", errors.New("no"), times) })
	}),
	"informertest.Faults.ListDelay": extremes.Field("", nil, inBubble(func(t *testing.T, faults informertest.Faults) error {
		return serves(t, metav1.ListOptions{}, func(src *source) { src.SetFaults(faults) })
	})),
	"informertest.Source.WaitForWatches(n)": number(func(t *testing.T, n int) error {
		err := informertest.NewSource(object("a", "1")).WaitForWatches(testkit.Within(t, hour), n)
		if n != 0 && errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	}),
	"informertest.Source.ListWithContext(options).Limit":           number(limited),
	"informertest.Source.ListWithContext(options).TimeoutSeconds":  number(timed),
	"informertest.Source.WatchWithContext(options).Limit":          number(limited),
	"informertest.Source.WatchWithContext(options).TimeoutSeconds": number(timed),

	"informertest.StoreFaults.Delay(d)": number(func(t *testing.T, d time.Duration) error { return plain(t, func(s *informertest.Store) { s.Delay(d) }) }),
	"informertest.Durable.Delay(d)": number(func(t *testing.T, d time.Duration) error {
		return durable(t, func(s *informertest.Durable) { s.Delay(d) })
	}),
	"informertest.StoreFaults.FailRandomly(probability)": extremes.Number("max -1 min inf -inf nan", inBubble(func(t *testing.T, p float64) error {
		return plain(t, func(s *informertest.Store) { s.FailRandomly(1, p) })
	})),
	"informertest.Durable.FailRandomly(probability)": extremes.Number("max -1 min inf -inf nan", inBubble(func(t *testing.T, p float64) error {
		return durable(t, func(s *informertest.Durable) { s.FailRandomly(1, p) })
	})),
	"informertest.StoreFaults.FailRandomly(seed)": number(func(t *testing.T, seed uint64) error {
		return plain(t, func(s *informertest.Store) { s.FailRandomly(seed, 0.5) })
	}),
	"informertest.Durable.FailRandomly(seed)": number(func(t *testing.T, seed uint64) error {
		return durable(t, func(s *informertest.Durable) { s.FailRandomly(seed, 0.5) })
	}),
	"informertest.Durable.LoseOnCrash(n)": number(func(t *testing.T, n int) error {
		return durable(t, func(s *informertest.Durable) { s.LoseOnCrash(n) })
	}),
	"informertest.Durable.Scan(limit)": extremes.Number("0 -1 min", inBubble(func(t *testing.T, limit int) error {
		s := informertest.NewDurable()
		testkit.Must(t, s.Apply(t.Context(), []informer.Change{testkit.Storing(object("a", "1")), testkit.Storing(object("b", "1"))}, ""))
		objs, err := s.Scan(t.Context(), "", limit)
		if err == nil && len(objs) != 2 {
			t.Errorf("it returned %d of 2 objects", len(objs))
		}
		return err
	})),
}

// number returns a trial of a number that is never refused.
func number[N any](try func(t *testing.T, n N) error) extremes.Trial {
	return extremes.Number("", inBubble(try))
}

func limited(t *testing.T, n int64) error {
	return serves(t, metav1.ListOptions{Limit: n}, func(*source) {})
}

func timed(t *testing.T, n int64) error {
	return serves(t, metav1.ListOptions{TimeoutSeconds: &n}, func(*source) {})
}

// serves checks that requests to a source fail, or take an hour, as long as it has faults. Then a list has all
// objects, and a watch is open for a minute at least, and delivers a change after that.
func serves(t *testing.T, opts metav1.ListOptions, spoil func(*source)) error {
	src := informertest.NewSource(object("a", "1"), object("b", "1"))
	spoil(src)
	if _, err := src.ListWithContext(testkit.Within(t, hour), opts); err != nil && err.Error() != "no" && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	src.Heal()
	list, err := src.ListWithContext(t.Context(), opts)
	if err != nil {
		return err
	}
	testkit.Equal(t, "objects in the list", len(list.(*metav1.List).Items), 2)
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

// plain checks that operations of a store fail at most as long as it has faults. It returns the panic of spoil as an
// error.
func plain(t *testing.T, spoil func(*informertest.Store)) error {
	s := informertest.NewStore(nil)
	if err := panics(func() { spoil(s) }); err != nil {
		return err
	}
	began := time.Now()
	for n := range 100 {
		if err := s.Add(object(fmt.Sprint(n), "1")); err == nil && len(s.ListKeys()) == 0 {
			t.Error("an add has failed without an error")
		}
		if time.Since(began) > hour {
			break
		}
	}
	s.Heal()
	if err := s.Add(object("a", "1")); err != nil {
		return err
	}
	if _, exists, err := s.GetByKey("default/a"); !exists || err != nil {
		t.Errorf("a healed store has the object: %t, %v", exists, err)
	}
	return nil
}

// durable does the same for a durable store, and checks that a crash undoes all writes or none.
func durable(t *testing.T, spoil func(*informertest.Durable)) error {
	s := informertest.NewDurable()
	if err := panics(func() { spoil(s) }); err != nil {
		return err
	}
	ctx, stored := testkit.Within(t, hour), 0
	for n := range 100 {
		if err := s.Apply(ctx, []informer.Change{testkit.Storing(object(fmt.Sprint(n), "1"))}, ""); err == nil {
			stored++
		}
	}
	if left := len(testkit.Stored(s.Reopen())); stored == 100 && left != 100 && left != 0 {
		t.Errorf("after a crash %d objects are left, want 100 or none", left)
	}
	return nil
}
