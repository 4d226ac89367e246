package informer

import (
	"fmt"
	"testing"
	"time"
)

// TestWhoHearsOfUnchangedObjects starts an informer at minute 5 of the stopwatch. The informer
// checks every 10 minutes which handlers are due.
func TestWhoHearsOfUnchangedObjects(t *testing.T) {
	const m = time.Minute
	for _, test := range []struct {
		added, asked, every, period time.Duration
		dueAfter                    []int // checks after which the handler is due, of the first 8; 0 is before the first
	}{
		{0, 0, 10 * m, 0, []int{0}},
		{0, 10 * m, 10 * m, 10 * m, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{5 * m, 5 * m, 10 * m, 10 * m, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{5 * m, 20 * m, 10 * m, 20 * m, []int{0, 2, 4, 6, 8}},
		{5 * m, 15 * m, 10 * m, 20 * m, []int{0, 2, 4, 6, 8}},
		{-42 * m, 20 * m, 10 * m, 20 * m, []int{0, 1, 3, 5, 7}}, // added long before the start
		{5 * m, 20 * m, 0, 0, []int{0}},
	} {
		h := &handler[pod]{added: test.added, asked: test.asked}
		h.due.Store(true)
		if period := h.settle(test.every); period != test.period {
			t.Errorf("added at %v, every %v: resynced every %v, want %v", test.added, test.asked, period, test.period)
		}
		due := []int{0}
		for n := range 8 {
			if h.look(5*m + time.Duration(n+1)*10*m); h.due.Load() {
				due = append(due, n+1)
			}
		}
		if fmt.Sprint(due) != fmt.Sprint(test.dueAfter) {
			t.Errorf("added at %v, every %v: due after the looks %v, want %v", test.added, test.asked, due, test.dueAfter)
		}
	}
}
