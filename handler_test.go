package informer

import (
	"fmt"
	"testing"
	"time"
)

// TestWhoHearsOfUnchangedObjects counts checks every 10 minutes from the start, at
// minute 5 by the stopwatch.
func TestWhoHearsOfUnchangedObjects(t *testing.T) {
	const m = time.Minute
	checks := resyncChecks{every: 10 * m, begun: 5 * m}
	for _, test := range []struct {
		added, asked time.Duration
		dueAfter     []int // of the first 8 checks; 0 is before the first
	}{
		{0, 0, []int{0}},
		{0, 10 * m, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{5 * m, 20 * m, []int{0, 2, 4, 6, 8}},
		{5 * m, 15 * m, []int{0, 2, 4, 6, 8}}, // rounded up
		{27 * m, 0, []int{0, 1, 2}},           // after the second check; before that it hears of nothing anyhow
		{27 * m, 30 * m, []int{0, 1, 2, 6}},
	} {
		c := checks.of(test.added, test.asked)
		var due []int
		for n := range 9 {
			if c.due(checks.begun + time.Duration(n)*checks.every + m) {
				due = append(due, n)
			}
		}
		if fmt.Sprint(due) != fmt.Sprint(test.dueAfter) {
			t.Errorf("added at %v, every %v: due after the checks %v, want %v", test.added, test.asked, due, test.dueAfter)
		}
	}
	if never := (resyncChecks{}); !never.of(0, m).due(time.Hour) || never.of(0, m).period != 0 {
		t.Error("without checks, not everybody hears of it, or somebody is resynced")
	}
}
