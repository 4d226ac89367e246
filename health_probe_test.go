package informer_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// state is a state of an informer that Ready and Live judge.
type state struct {
	after       time.Duration // time spent in that state
	bring       func(*stateful, *testing.T)
	ready, live string // texts of the errors; empty for none
}

// stateful is an informer, not yet running, with its source and its store.
type stateful struct {
	*ci
	src   *source
	store *informertest.Store
}

func (s *stateful) unheard(t *testing.T) {
	s.src.SetFaults(informertest.Faults{HoldLists: true})
	start(t, s.ci)
}

func (s *stateful) synced(t *testing.T) {
	start(t, s.ci)
	synctest.Wait()
}

func (s *stateful) hung(t *testing.T) {
	s.synced(t)
	s.store.Hang()
	s.src.Apply(object("a", "2"))
}

var states = map[string]state{
	"not started":  {bring: func(*stateful, *testing.T) {}, after: hour, ready: "has not started"},
	"not synced":   {bring: (*stateful).unheard, after: 30*time.Second - 1, ready: "has not synced"},
	"not answered": {bring: (*stateful).unheard, after: hour, ready: "has not synced: list ConfigMap: no answer for 1h0m0s"},
	"not synced because of the source": {after: hour, ready: "has not synced: list ConfigMap: it is forbidden", bring: func(s *stateful, t *testing.T) {
		s.src.Fail("list", errors.New("it is forbidden"), -1)
		start(t, s.ci)
	}},
	"synced": {bring: (*stateful).synced, after: hour},
	"without API server since it has synced": {after: 24 * hour, bring: func(s *stateful, t *testing.T) {
		s.synced(t)
		unreachable(s.src)
	}},
	"with a store that fails": {after: hour, ready: "store: get default/a: disk full", bring: func(s *stateful, t *testing.T) {
		s.synced(t)
		s.store.Fail(func(string, string) error { return errors.New("disk full") })
		s.src.Apply(object("a", "2"))
	}},
	"with a store that is slow":  {bring: (*stateful).hung, after: 10*time.Second - 1},
	"with a store that hangs":    {bring: (*stateful).hung, after: 10 * time.Second, ready: "store: get default/a: has not returned for 10s"},
	"with a store still hanging": {bring: (*stateful).hung, after: 5*time.Minute - 1, ready: "store: get default/a: has not returned for 4m59s"},
	"with a store that is dead": {bring: (*stateful).hung, after: 5 * time.Minute, ready: "store: get default/a: has not returned for 5m0s",
		live: "the store has not answered for 5m0s: store: get default/a: has not returned for 5m0s"},
	"with a watcher that blocks": {after: 24 * hour, bring: func(s *stateful, t *testing.T) {
		addWatcher(t, s.ci, &recorder{Hook: func(ctx context.Context, _ event) error { <-ctx.Done(); return nil }}, informer.WatcherOptions{})
		s.synced(t)
	}},
	"stopped": {after: hour, ready: "informer has stopped", bring: func(s *stateful, t *testing.T) { start(t, s.ci)() }},
}

func TestAnInformerIsReadyWhileItCanBeReliedOnAndLiveUnlessARestartHelps(t *testing.T) {
	for name, state := range states {
		eachQueueOf(t, name, func(t *testing.T, queue informer.QueueKind) {
			s := &stateful{src: informertest.NewSource(object("a", "1")), store: informertest.NewStore(nil)}
			s.ci = newInformer(t, s.src, options{Name: "ConfigMap", Queue: queue, Store: s.store, WatchList: informer.WatchListOff, ErrorHandler: quiet})
			state.bring(s, t)
			sleepBubble(state.after)
			h := s.Health()
			checkReason(t, "Ready", h.Ready(), state.ready)
			checkReason(t, "Live", h.Live(), state.live)
			s.store.Heal() // a call that hangs returns
		})
	}
}

// checkReason fails the test unless err gives the reason want for the informer.
func checkReason(t *testing.T, what string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if want != "" {
		want = "informer ConfigMap: " + want
	}
	equal(t, what, got, want)
}

func TestWhyAnInformerIsNotReadyCanBeAsked(t *testing.T) {
	full := errors.New("disk full")
	for _, h := range []informer.Health{
		{Started: true, Synced: true, StoreError: &informer.StoreError{Err: full}},
		{Started: true, SourceError: &informer.WatchError{Err: full}},
	} {
		fails(t, h.Ready(), full)
	}
	fails(t, informer.Health{Stopped: true}.Ready(), informer.ErrStopped)
	checkReason(t, "Live without a StoreError", informer.Health{Name: "ConfigMap", StoreBusy: hour}.Live(), "the store has not answered for 1h0m0s")
	checkReason(t, "the zero Health", informer.Health{Name: "ConfigMap"}.Ready(), "has not started")
}

func TestAProbeAnswersWithTheResultOfTheCheck(t *testing.T) {
	reason := errors.New("informer Pod: has not synced")
	check := func() error { return reason }
	probe := func(handler http.Handler, wantCode int, wantBody string) {
		t.Helper()
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if typ := answer.Header().Get("Content-Type"); answer.Code != wantCode || answer.Body.String() != wantBody || typ != "text/plain; charset=utf-8" {
			t.Errorf("%d %q of type %q, want %d %q", answer.Code, answer.Body, typ, wantCode, wantBody)
		}
	}
	handler := informer.ProbeHandler(check)
	probe(handler, http.StatusServiceUnavailable, "informer Pod: has not synced\n")
	reason = nil
	probe(handler, http.StatusOK, "ok\n")
	probe(informer.ProbeHandler(nil), http.StatusServiceUnavailable, "informer: ProbeHandler was given no check\n")
}
