//go:build linux

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/store/valkey/internal/server"
)

func TestMain(m *testing.M) {
	roles.Play()
	os.Exit(m.Run())
}

func TestTheReportHasEachStep(t *testing.T) {
	server.Path(t) // or the test is skipped
	var out strings.Builder
	if err := (setup{Objects: 1000, During: 10 * time.Millisecond}).report(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		if !strings.Contains(out.String(), "| "+step+": ") {
			t.Errorf("there is no row for %s", step)
		}
	}
	t.Log("\n" + out.String())
}
