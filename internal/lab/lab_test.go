package lab

import (
	"context"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Roles{
		"half": Once(func(n int) (int, error) {
			if n%2 == 1 {
				return 0, errors.New("it is odd")
			}
			return n / 2, nil
		}),
		"add": RoleOf(func(to int) error {
			if err := Tell("ready"); err != nil {
				return err
			}
			return Answer(func(n int) (int, error) {
				if n < 0 {
					return 0, errors.New("it is negative")
				}
				return to + n, nil
			})
		}),
		"deaf": Once(func(int) (int, error) { select {} }),
	}.Play()
	os.Exit(m.Run())
}

func TestAChildMeasuresOnce(t *testing.T) {
	got := 0
	if err := Measure(t.Context(), "half", 42, &got); err != nil || got != 21 {
		t.Errorf("got %d, %v", got, err)
	}
	if err := Measure(t.Context(), "half", 1, &got); err == nil || !strings.Contains(err.Error(), "it is odd") {
		t.Errorf("the error of the child is %v", err)
	}
}

func TestAChildAnswers(t *testing.T) {
	c, err := StartChild(t.Context(), "add", 10)
	if err != nil {
		t.Fatal(err)
	}
	said, sum := "", 0
	if err := c.Hear(&said); err != nil || said != "ready" {
		t.Errorf("it wrote %q, %v", said, err)
	}
	for _, n := range []int{1, 2} {
		if err := c.Ask(n, &sum); err != nil || sum != 10+n {
			t.Errorf("got %d, %v", sum, err)
		}
	}
	if err := c.Ask(-1, &sum); err == nil || !strings.Contains(err.Error(), "it is negative") {
		t.Errorf("the error of the child is %v", err)
	}
	if err := c.End(); err != nil {
		t.Errorf("the error is returned twice: %v", err)
	}
}

func TestAChildEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	got := 0
	if err := Measure(ctx, "deaf", 0, &got); err == nil {
		t.Error("no error")
	}
}

func TestSubjectsTakeTurns(t *testing.T) {
	order := ""
	err := Rounds(3, []string{"a", "b", "c"}, func(_ int, s string) error { order += s; return nil })
	if err != nil || order != "abc"+"bca"+"cab" {
		t.Errorf("%s, %v", order, err)
	}
	broken := errors.New("broken")
	if err := Rounds(1, []string{"a"}, func(int, string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestDivideCallsForEach(t *testing.T) {
	called := make([]int, 10)
	if err := Divide(len(called), 3, func(i int) error { called[i]++; return nil }); err != nil || slices.Min(called) != 1 || slices.Max(called) != 1 {
		t.Errorf("%v, %v", called, err)
	}
	if err := Divide(5, 2, func(int) error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func TestStatistics(t *testing.T) {
	for want, values := range map[float64][]float64{3: {3}, 2: {9, 1, 2}, 2.5: {4, 1, 3, 2}} {
		if got := Median(values); got != want {
			t.Errorf("the median of %v is %v, want %v", values, got, want)
		}
	}
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(i+1))
	}
	if got := Quantiles(hundred, 0.5, 0.99, 1); !slices.Equal(got, []float64{50, 99, 100}) {
		t.Errorf("the quantiles are %v", got)
	}
	for v, want := range map[float64]string{0: "0", 0.0012345: "0.00123", 0.0000123: "0.0000", 12.36: "12.4", 99.96: "100", 1234567: "1,234,567", Median(nil): "–", math.Inf(1): "–"} {
		if got := Number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

func TestIntervals(t *testing.T) {
	for n, want := range map[int][2]float64{1: {1, 1}, 5: {1, 5}, 6: {1, 6}, 9: {2, 8}, 15: {4, 12}, 20: {6, 15}} {
		var values []float64
		for i := range n {
			values = append(values, float64(n-i))
		}
		if low, high := Interval(values); low != want[0] || high != want[1] {
			t.Errorf("%d values: %v to %v, want %v", n, low, high, want)
		}
	}
}

func TestPositive(t *testing.T) {
	n := flag.Int("lab-n", 1, "")
	for *n = range 3 {
		if err := Positive("lab-n"); (err == nil) != (*n > 0) {
			t.Errorf("%d: %v", *n, err)
		}
	}
}
