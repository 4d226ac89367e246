package serving

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The versions of the tests are such that each is 3 s from being there.
func TestAReadOfAVersionThatTheSourceHasIsToldToComeBack(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 s: make test-long")
	}
	var asked atomic.Int64
	f := serve(t, func(c *Config) {
		c.Resources[0].Reached = func(_ context.Context, version uint64) (bool, error) {
			asked.Add(1)
			if version == 888 {
				return false, errors.New("away")
			}
			return version < 900, nil
		}
	})
	f.pods.set(t, pod("a", "n1"))
	const initial = "&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for _, path := range []string{podPath + "?", podPath + "/a?", podPath + "?limit=1&", podPath + "?" + initial + "&"} {
		body := f.get(t, path+"resourceVersion=800", http.StatusTooManyRequests)
		if !strings.Contains(body, `"retryAfterSeconds":1`) || strings.Contains(body, string(metav1.CauseTypeResourceVersionTooLarge)) {
			t.Errorf("%s: %s", path, body)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the source was asked %d times, want once", n)
	}
	f.get(t, podPath+"?resourceVersion=888", http.StatusTooManyRequests)
	body := f.get(t, podPath+"?resourceVersion=900", http.StatusGone)
	if !strings.Contains(body, string(metav1.StatusReasonExpired)) {
		t.Error(body)
	}
}

func TestAnAnswerOfTheSourceCountsForVersionsThatFollowFromIt(t *testing.T) {
	var asked []uint64
	a := newAhead(func(_ context.Context, version uint64) (bool, error) {
		asked = append(asked, version)
		return version <= 10, nil
	})
	for _, test := range []struct {
		version uint64
		has     bool
		asked   int
	}{{8, true, 1}, {8, true, 1}, {3, true, 1}, {9, true, 2}, {20, false, 3}, {21, false, 3}, {11, false, 4}, {9, true, 5}} {
		if has, err := a.ask(t.Context(), test.version); err != nil || has != test.has || len(asked) != test.asked {
			t.Errorf("version %d: got %v, %v, asked %v", test.version, has, err, asked)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a.turn <- struct{}{}
	if _, err := a.ask(ended, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v while another request asks, want the end of the request", err)
	}
}

func TestAWatchFromAVersionThatTheSourceHasLostExpires(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 6 s: make test-long")
	}
	f := serve(t, func(c *Config) {
		c.Resources[0].Reached = func(_ context.Context, version uint64) (bool, error) { return version < 900, nil }
	})
	f.pods.set(t, pod("a", "n1"))
	f.get(t, podPath+"?watch=true&resourceVersion=900", http.StatusGone)
	// A relay that is only late lets the watch begin.
	f.get(t, podPath+"?watch=true&timeoutSeconds=4&resourceVersion=800", http.StatusOK)
}
