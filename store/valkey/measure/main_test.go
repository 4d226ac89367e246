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
	if text := os.Getenv(childVariable); text != "" {
		child(text)
		return
	}
	os.Exit(m.Run())
}

func TestTheReportHasEachStartAndEachWayToReadAndWrite(t *testing.T) {
	server.Path(t) // or the test is skipped
	var out strings.Builder
	s := setup{Objects: 1000, Size: 200, During: 10 * time.Millisecond}
	if err := compare(t.Context(), s, allRoles, t.TempDir(), &out); err != nil {
		t.Fatal(err)
	}
	for _, role := range allRoles {
		if !strings.Contains(out.String(), "| "+role+": ") {
			t.Errorf("there is no row for %s", role)
		}
	}
	t.Log("\n" + out.String())
}
