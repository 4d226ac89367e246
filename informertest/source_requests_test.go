package informertest_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequestsHaveTheQuestionsAndTheAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		src.Compact()
		src.Fail("list", syscall.ECONNREFUSED, 1)
		_, _ = src.List(metav1.ListOptions{Limit: 7})
		_, _ = src.List(metav1.ListOptions{ResourceVersion: "1"})
		openWatch(t, src, metav1.ListOptions{ResourceVersion: "1"})
		openWatch(t, src, watchList(""))

		requests := src.Requests()
		*requests[3].Options.SendInitialEvents = false // changes a copy only
		var got []string
		for _, r := range src.Requests() {
			got = append(got, fmt.Sprintln(r.Verb, r.Options.Limit, r.Options.ResourceVersion, r.Options.SendInitialEvents != nil && *r.Options.SendInitialEvents, r.Err))
		}
		want := []string{
			"list 7  false connection refused\n",
			"list 0 1 false <nil>\n",
			"watch 0 1 false too old resource version: 1 (1002)\n",
			"watch 0  true <nil>\n",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestWaitForWatchesReturnsWhenExactlySoManyAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(configMap("a", "1"))
		if err := src.WaitForWatches(t.Context(), 0); err != nil {
			t.Errorf("none is open, but: %v", err)
		}
		start := time.Now()
		open := func() { must(src.WatchWithContext(t.Context(), metav1.ListOptions{})) }
		time.AfterFunc(time.Second, open)
		time.AfterFunc(time.Minute, open)
		time.AfterFunc(time.Hour, src.Disconnect)
		for _, c := range []struct {
			n     int
			after time.Duration
		}{{1, time.Second}, {2, time.Minute}, {0, time.Hour}} {
			if err := src.WaitForWatches(t.Context(), c.n); err != nil || time.Since(start) != c.after {
				t.Errorf("got %v for %d watches after %v, want nil after %v", err, c.n, time.Since(start), c.after)
			}
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := src.WaitForWatches(ctx, 1)
		if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "informertest: 0 watches are open, not 1: context deadline exceeded" {
			t.Errorf("got error %v", err)
		}
	})
}
