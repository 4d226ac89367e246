package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

func TestMain(m *testing.M) {
	os.Exit(apiserver.ExitCode(m.Run()))
}

func TestASmallRunHasEveryFigure(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs several operators: make soak")
	}
	const n = 30
	c := config{sites: n, workers: 2, rounds: 1, idle: time.Second}
	found, err := measureAll(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sides {
		f := found.rounds[s.name][0]
		for what, p := range map[string]phase{"start": f.Create, "restart": f.Restart, "other hosts": f.Move} {
			writes := 2 * n // an Ingress and a status for each Website
			if what == "restart" {
				writes = 0
			}
			if p.Reconciles < n || p.Writes-p.Refused != writes {
				t.Errorf("%s, %s: %d reconciles, %d writes, of which %d refused", s.name, what, p.Reconciles, p.Writes, p.Refused)
			}
			if p.Wall <= 0 || p.CPU <= 0 || p.Heap <= 0 || p.Anon < p.Heap || p.Peak < p.Anon {
				t.Errorf("%s, %s: %+v", s.name, what, p)
			}
		}
		if p := f.Idle; p.Wall < 1 || p.CPU <= 0 || p.Reconciles != 0 || p.Writes != 0 {
			t.Errorf("%s, while nothing happens: %+v", s.name, p)
		}
	}
	var out strings.Builder
	found.report(&out, c)
	report := out.String()
	if lines := strings.Count(report, "\n| "); lines != len(parts)*(1+len(rows)) {
		t.Errorf("%d lines of tables, want %d", lines, len(parts)*(1+len(rows)))
	}
	if strings.Contains(report, "NaN") || !regexp.MustCompile(`controller-runtime v\d`).MatchString(report) {
		t.Errorf("the report:\n%s", report)
	}
}
