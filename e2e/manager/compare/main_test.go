package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

func TestMain(m *testing.M) {
	if isChild(os.Args) {
		exit(beChild(os.Stdin, os.Stdout))
	}
	os.Exit(apiserver.ExitCode(m.Run()))
}

func TestASmallRunHasEveryFigure(t *testing.T) {
	c := config{work: work{Objects: 30, Controllers: 2, Updates: 60}, rounds: 1}
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
		if f.Start.CPU <= 0 || f.Start.Wall <= 0 || f.Idle.Heap <= 0 || f.Idle.Peak < f.Idle.Heap || f.Idle.Goroutines == 0 {
			t.Errorf("%s: %+v", s, f)
		}
	}
	report := found.report(c)
	if lines := strings.Count(report, "\n| "); lines != 2*(1+len(rows)) {
		t.Errorf("%d lines of tables, want %d", lines, 2*(1+len(rows)))
	}
	if strings.Contains(report, "NaN") || !regexp.MustCompile(`start: reconciles \|  \| 60 \| 60 \| 1 \|`).MatchString(report) {
		t.Errorf("the report:\n%s", report)
	}
}

func TestWhatIsNoFigureIsADash(t *testing.T) {
	if got := (results{}).report(config{rounds: 1}); strings.Contains(got, "NaN") {
		t.Errorf("the report of nothing:\n%s", got)
	}
	for value, want := range map[float64]string{0: "0", 0.3333333: "0.333", 12.345: "12.3", 1234567: "1,234,567", 0.0000123: "0.0000"} {
		if got := number(value); got != want {
			t.Errorf("%v: got %s, want %s", value, got, want)
		}
	}
}
