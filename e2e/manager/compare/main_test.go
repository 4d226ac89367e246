package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

func TestMain(m *testing.M) {
	roles.Play()
	os.Exit(apiserver.ExitCode(m.Run()))
}

func TestASmallRunHasEveryFigure(t *testing.T) {
	checkRun(t, config{work: work{Objects: 30, Controllers: 2, Updates: 60}, rounds: 1}, 2)
}

func TestReconcilersThatListAreMeasured(t *testing.T) {
	checkRun(t, config{work: work{Objects: 30, Controllers: 2, Updates: 60, Rate: 1000, List: true}, rounds: 1}, 1)
}

func checkRun(t *testing.T, c config, tables int) {
	found, err := measureAll(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for s, rounds := range found {
		f := rounds[0]
		// Nothing merges events of the server on their way to handlers; queues may merge keys.
		if f.Start.Calls < 60 || f.Update.Calls < 60 || s.Handlers && f.Update.Calls != 120 {
			t.Errorf("%s: %d calls at start, %d of updates", s, f.Start.Calls, f.Update.Calls)
		}
		if f.Update.Median <= 0 || f.Update.P99 < f.Update.Median {
			t.Errorf("%s: updates arrive after %v s, 99 of 100 within %v s", s, f.Update.Median, f.Update.P99)
		}
		if f.Start.CPU <= 0 || f.Start.Wall <= 0 || f.Idle.Heap <= 0 || f.Idle.Peak < f.Idle.Heap || f.Idle.Goroutines == 0 {
			t.Errorf("%s: %+v", s, f)
		}
	}
	var out strings.Builder
	found.report(&out, c)
	report := out.String()
	if lines := strings.Count(report, "\n| "); lines != tables*(1+len(rows)) {
		t.Errorf("%d lines of tables, want %d", lines, tables*(1+len(rows)))
	}
	if strings.Contains(report, "NaN") || !regexp.MustCompile(`start: reconciles \|  \| 60 \| 60 \| 1 \|`).MatchString(report) {
		t.Errorf("the report:\n%s", report)
	}
}
