package serving

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The versions of the tests are such that each is 3 s from being there.
func TestAReadOfAVersionThatTheSourceHasIsAskedToComeBack(t *testing.T) {
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

func TestOnlyVersionsOfTheSourceCountForLaterQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []uint64
		newest := uint64(10)
		a := newAhead(func(_ context.Context, version uint64) (bool, error) {
			asked = append(asked, version)
			return version <= newest, nil
		})
		for _, test := range []struct {
			version, newest uint64
			has             bool
			asked           int
		}{{8, 10, true, 1}, {8, 10, true, 1}, {3, 10, true, 1}, {9, 10, true, 2}, {11, 10, false, 3}, {11, 10, false, 4}, {11, 12, true, 5}, {9, 5, true, 5}} {
			newest = test.newest
			if has, err := a.ask(t.Context(), test.version); err != nil || has != test.has || len(asked) != test.asked {
				t.Errorf("version %d of %d: got %v, %v, asked %v", test.version, newest, has, err, asked)
			}
		}
		time.Sleep(answerLife) // the source may have been restored
		if has, err := a.ask(t.Context(), 9); err != nil || has {
			t.Errorf("version 9 of 5: got %v, %v, want that it is lost", has, err)
		}
	})
}

// The questions of a herd arrive while the source is asked. Each gets the answer that holds for its version.
func TestAHerdAsksFewQuestions(t *testing.T) {
	for name, newest := range map[string]uint64{"the source has all versions": 5000, "has half": 1500, "has none": 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				a := newAhead(func(_ context.Context, version uint64) (bool, error) {
					asked++
					time.Sleep(time.Millisecond)
					return version <= newest, nil
				})
				var herd sync.WaitGroup
				for range 1000 {
					version := 1000 + rand.Uint64N(1000)
					herd.Go(func() {
						if has, err := a.ask(t.Context(), version); err != nil || has != (version <= newest) {
							t.Errorf("version %d of %d: got %v, %v", version, newest, has, err)
						}
					})
				}
				herd.Wait()
				if asked > 60 { // about 2 ln 1000 are expected
					t.Errorf("the source was asked %d times", asked)
				}
				t.Logf("the source was asked %d times", asked)
			})
		})
	}
}

func TestAnUnansweredQuestionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAhead(func(ctx context.Context, _ uint64) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		})
		begun := time.Now()
		var asking sync.WaitGroup
		for range 10 {
			asking.Go(func() {
				if _, err := a.ask(t.Context(), 1); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
		}
		asking.Wait()
		if took := time.Since(begun); took != askTime {
			t.Errorf("ten questions took %v", took)
		}
	})
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
	// Once it has begun, nothing would end a watch from a version that the source loses before the relay has it.
	f.get(t, podPath+"?watch=true&timeoutSeconds=4&resourceVersion=800", http.StatusTooManyRequests)
}
