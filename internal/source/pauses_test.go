package source_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// failing returns a source whose requests of these verbs fail, with an informer over it, and counts the requests.
func failing(t *testing.T, backoff *wait.Backoff, failure error, verbs ...string) (src *fakeSource, requests func() int) {
	src = informertest.NewSource(object("a", "1"))
	for _, verb := range verbs {
		src.Fail(verb, failure, -1)
	}
	inf := newInformer(t, src, options{Backoff: backoff, WatchList: informer.WatchListOff, ErrorHandler: ignore})
	start(t, inf)
	return src, func() (n int) {
		for _, r := range src.Requests() {
			if r.Err != nil {
				n++
			}
		}
		return n
	}
}

func TestPausesGrowAsLongAsRequestsFail(t *testing.T) {
	doubling := &wait.Backoff{Duration: time.Second, Factor: 2, Steps: 100, Cap: 20 * time.Minute}
	list, watch := "list", "watch"
	for n, tc := range []struct {
		backoff  *wait.Backoff
		failure  error
		verbs    []string
		min, max int // requests in three hours
	}{
		{doubling, forbidden("configmaps"), []string{list}, 17, 20},
		{nil, forbidden("configmaps"), []string{list}, 225, 300},
		{doubling, forbidden("configmaps"), []string{watch}, 15, 20},
		{doubling, apierrors.NewTooManyRequests("later", 1), []string{watch}, 15, 20}, // the reflector repeats it
		{doubling, errDown, []string{list, watch}, 15, 20},
	} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, requests := failing(t, tc.backoff, tc.failure, tc.verbs...)
				sleepBubble(3 * time.Hour)
				if n := requests(); n < tc.min || n > tc.max {
					t.Errorf("%d requests, want %d to %d", n, tc.min, tc.max)
				}
			})
		})
	}
}

func TestPausesStartAgainAfterTwoGoodMinutes(t *testing.T) {
	for good, next := range map[time.Duration]time.Duration{122 * time.Second: time.Second, 90 * time.Second: 16 * time.Second} {
		t.Run(good.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backoff := &wait.Backoff{Duration: time.Second, Factor: 2, Steps: 100, Cap: time.Hour}
				src, requests := failing(t, backoff, forbidden("configmaps"), "list")
				sleepBubble(10 * time.Second) // after pauses of 1, 2 and 4 s
				src.Heal()
				sleepBubble(5*time.Second + good)
				src.Fail("watch", forbidden("configmaps"), -1)
				src.Fail("list", forbidden("configmaps"), -1)
				src.Disconnect()
				sleepBubble(next - time.Millisecond)
				early := requests()
				sleepBubble(2 * time.Millisecond)
				if late := requests(); early != 5 || late != 6 {
					t.Errorf("%d and %d failed requests", early, late)
				}
			})
		})
	}
}

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
