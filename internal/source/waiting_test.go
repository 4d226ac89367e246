package source_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// A request without an answer is shown after 30 s, with the reason if client-go knows one.
func TestARequestWithoutAnAnswerIsShown(t *testing.T) {
	busyThenHangs := func() testkit.Answer {
		asked := 0
		return func(req *http.Request) (*http.Response, error) {
			if asked++; asked <= 11 {
				return testkit.Refuses(503, "ServiceUnavailable", "Retry-After", "1")(req)
			}
			return testkit.Hangs(req)
		}
	}
	hangs := func() testkit.Answer { return testkit.Hangs }
	throttled := func() testkit.Answer { return testkit.Refuses(429, "TooManyRequests", "Retry-After", "50") }
	for name, tc := range map[string]struct {
		is     func(*http.Request) bool
		answer func() testkit.Answer
		opts   anyOptions
		want   string // in the error after two minutes
	}{
		"a list":                  {isList, hangs, anyOptions{}, "list maps: no answer for 2m0s"},
		"a page":                  {isLaterPage, hangs, anyOptions{PageSize: 2}, "list maps: no answer for 2m0s"},
		"a stream":                {testkit.IsStream, hangs, anyOptions{WatchList: informer.WatchListOn}, "watch maps: no answer for 2m0s"},
		"a watch":                 {testkit.IsWatch, hangs, anyOptions{}, "watch maps: no answer for 2m0s"},
		"429, again after 50 s":   {isList, throttled, anyOptions{}, "list maps: no answer for 2m0s: the server has asked the client 2 times to wait, the last time for 50s"},
		"503, and then a silence": {isList, busyThenHangs, anyOptions{}, "s; before that, list: no: ServiceUnavailable"},
	} {
		for _, queue := range queues {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWire()
					w.Odd(odd(tc.is, tc.answer()))
					opts := tc.opts
					opts.Queue = queue
					o := observe(t, typedClient(w), opts)
					sleepBubble(30*time.Second - time.Millisecond)
					if h := o.Health(); h.SourceWaiting != 0 || h.SourceFailures == 0 && h.SourceError != nil {
						t.Errorf("before 30 s: %v, waiting for %v", h.SourceError, h.SourceWaiting)
					}
					sleepBubble(90*time.Second + time.Millisecond)
					h, synced := o.Health(), name == "a watch"
					if h.SourceError == nil || !strings.Contains(h.SourceError.Error(), tc.want) || h.SourceWaiting < time.Minute || h.Synced != synced {
						t.Errorf("after 2 minutes Health has the error %v, waiting for %v, synced: %v", h.SourceError, h.SourceWaiting, h.Synced)
					}
					if err := o.WaitForSync(within(t, 0)); (err == nil) != synced || !synced && !strings.Contains(err.Error(), tc.want) {
						t.Errorf("WaitForSync returns %v", err)
					}
				})
			})
		}
	}
}

func TestARequestAnsweredInTheEndIsNoLongerShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.Odd(toLists(func(req *http.Request) (*http.Response, error) {
			sleepUntil(req.Context(), 2*time.Minute)
			return testkit.Says(200, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1003"},"items":[]}`)(req)
		}))
		o := observe(t, typedClient(w), anyOptions{})
		sleepBubble(time.Minute)
		if h := o.Health(); h.SourceWaiting != time.Minute {
			t.Errorf("waiting for %v", h.SourceWaiting)
		}
		sleepBubble(time.Hour)
		if h := o.Health(); h.SourceWaiting != 0 || h.SourceError != nil || h.Ready() != nil {
			t.Errorf("waiting for %v, %v, %v", h.SourceWaiting, h.SourceError, h.Ready())
		}
	})
}
