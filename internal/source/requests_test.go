package source_test

import (
	"strings"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/informertest"
)

// As long as nothing goes wrong, an informer asks for nothing that client-go's would not ask for. A start with a version
// adds one small request.
func TestWithoutFailuresOnlyTheNecessaryRequestsAreMade(t *testing.T) {
	bothWays(t, func(t *testing.T, opts options, full string) {
		src := informertest.NewSource(object("a", "1"))
		store := informertest.NewDurable()
		first := strings.ReplaceAll(full+", watch from 1001", "stream, watch from 1001", "stream")
		oneRun(t, src, store, opts)
		if got := asked(src, 0); got != first {
			t.Errorf("a start without a version asked for: %s\nwant: %s", got, first)
		}
		n := len(src.Requests())
		opts.Durable = store.Reopen()
		inf := newInformer(t, src, opts)
		stop := start(t, inf)
		sleepBubble(10 * time.Second)
		if got, want := asked(src, n), "probe, watch from 1001"; got != want {
			t.Errorf("a start with a version asked for: %s\nwant: %s", got, want)
		}
		n = len(src.Requests())
		for range 60 {
			sleepBubble(time.Minute)
			src.Bookmark()
		}
		requests := strings.Split(asked(src, n), ", ")
		if len(requests) < 5 || len(requests) > 12 { // each watch lasts 5 to 10 minutes
			t.Errorf("in a quiet hour, %d requests", len(requests))
		}
		for _, r := range requests {
			if !strings.HasPrefix(r, "watch from ") {
				t.Errorf("in a quiet hour, the source was asked for: %s", r)
			}
		}
		stop()
	})
}
