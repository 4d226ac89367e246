package informer_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// state is a state of an informer that Ready and Live judge.
type state struct {
	after       time.Duration // time spent in that state
	bring       func(*testing.T, *stateful)
	ready, live string // texts of the errors; empty for none
}

// stateful is an informer, not yet running, with its source and its store.
type stateful struct {
	*ci
	src     *source
	store   *informertest.Store
	release func() // ends a hanging call before the test ends; may be nil
}

func (s *stateful) synced(t *testing.T) {
	start(t, s.ci)
	synctest.Wait()
}

func (s *stateful) hung(t *testing.T) {
	s.synced(t)
	s.release = s.store.Hang()
	s.src.Apply(object("a", "2"))
}

var states = map[string]state{
	"not started": {bring: func(*testing.T, *stateful) {}, after: hour, ready: "has not started"},
	"not synced": {after: 30*time.Second - 1, ready: "has not synced", bring: func(t *testing.T, s *stateful) {
		s.src.SetFaults(informertest.Faults{HoldLists: true})
		start(t, s.ci)
	}},
	"not answered": {after: hour, ready: "has not synced: list ConfigMap: no answer for 1h0m0s", bring: func(t *testing.T, s *stateful) {
		s.src.SetFaults(informertest.Faults{HoldLists: true})
		start(t, s.ci)
	}},
	"not synced because of the source": {after: hour, ready: "has not synced: list ConfigMap: it is forbidden", bring: func(t *testing.T, s *stateful) {
		s.src.Fail("list", errors.New("it is forbidden"), -1)
		start(t, s.ci)
	}},
	"synced": {after: hour, bring: func(t *testing.T, s *stateful) { s.synced(t) }},
	"without API server since it has synced": {after: 24 * hour, bring: func(t *testing.T, s *stateful) {
		s.synced(t)
		unreachable(s.src)
	}},
	"with a store that fails": {after: hour, ready: "store: get default/a: disk full", bring: func(t *testing.T, s *stateful) {
		s.synced(t)
		s.store.Fail(func(string, string) error { return errors.New("disk full") })
		s.src.Apply(object("a", "2"))
	}},
	"with a store that is slow":  {after: 10*time.Second - 1, bring: func(t *testing.T, s *stateful) { s.hung(t) }},
	"with a store that hangs":    {after: 10 * time.Second, ready: "store: get default/a: has not returned for 10s", bring: func(t *testing.T, s *stateful) { s.hung(t) }},
	"with a store still hanging": {after: 5*time.Minute - 1, ready: "store: get default/a: has not returned for 4m59s", bring: func(t *testing.T, s *stateful) { s.hung(t) }},
	"with a store that is dead": {after: 5 * time.Minute, ready: "store: get default/a: has not returned for 5m0s",
		live: "the store has not answered for 5m0s: store: get default/a: has not returned for 5m0s", bring: func(t *testing.T, s *stateful) { s.hung(t) }},
	"with a watcher that blocks": {after: 24 * hour, bring: func(t *testing.T, s *stateful) {
		addWatcher(t, s.ci, &recorder{Hook: func(ctx context.Context, _ event) error { <-ctx.Done(); return nil }}, informer.WatcherOptions{})
		s.synced(t)
	}},
	"stopped": {after: hour, ready: "informer has stopped", bring: func(t *testing.T, s *stateful) { start(t, s.ci)() }},
}

func TestAnInformerIsReadyWhileItCanBeReliedOnAndLiveUnlessARestartHelps(t *testing.T) {
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				s := &stateful{src: informertest.NewSource(object("a", "1")), store: informertest.NewStore(nil)}
				s.ci = newInformer(t, s.src, options{Name: "ConfigMap", Queue: queue, Store: s.store, WatchList: informer.WatchListOff, ErrorHandler: quiet})
				state.bring(t, s)
				sleepBubble(state.after)
				h := s.Health()
				checkReason(t, "Ready", h.Ready(), state.ready)
				checkReason(t, "Live", h.Live(), state.live)
				if s.release != nil {
					s.release()
				}
			})
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
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestWhyAnInformerIsNotReadyCanBeAsked(t *testing.T) {
	full := errors.New("disk full")
	for _, h := range []informer.Health{
		{Started: true, Synced: true, StoreError: &informer.StoreError{Err: full}},
		{Started: true, SourceError: &informer.WatchError{Err: full}},
	} {
		if err := h.Ready(); !errors.Is(err, full) {
			t.Errorf("Ready: %v", err)
		}
	}
	if err := (informer.Health{Stopped: true}).Ready(); !errors.Is(err, informer.ErrStopped) {
		t.Errorf("Ready: %v", err)
	}
	checkReason(t, "Live without a StoreError", informer.Health{Name: "ConfigMap", StoreBusy: hour}.Live(), "the store has not answered for 1h0m0s")
}

func TestAProbeAnswersWhatTheCheckSays(t *testing.T) {
	var reason error
	probe := func(h http.Handler) (int, string) {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if got := answer.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
			t.Errorf("the answer is of the type %q", got)
		}
		return answer.Code, answer.Body.String()
	}
	handler := informer.ProbeHandler(func() error { return reason })
	for range 2 {
		reason = nil
		if code, body := probe(handler); code != http.StatusOK || body != "ok\n" {
			t.Errorf("without an error: %d %q", code, body)
		}
		reason = errors.New("informer Pod: has not synced")
		if code, body := probe(handler); code != http.StatusServiceUnavailable || body != "informer Pod: has not synced\n" {
			t.Errorf("with an error: %d %q", code, body)
		}
	}
	if code, body := probe(informer.ProbeHandler(nil)); code != http.StatusServiceUnavailable || !strings.Contains(body, "no check") {
		t.Errorf("without a check: %d %q", code, body)
	}
}

func TestTheZeroHealthIsNotReady(t *testing.T) {
	if err := (informer.Health{Name: "secrets"}).Ready(); err == nil || err.Error() != "informer secrets: has not started" {
		t.Errorf("Ready returned %v", err)
	}
}

// errMember is a Member, and a MemberHealth that is ready when it is nil.
type errMember struct {
	stub
	ready error
}

func (m *errMember) MemberHealth() informer.MemberHealth { return *m }
func (errMember) HasRun() bool                           { return false }
func (m errMember) Ready() error                         { return m.ready }
func (errMember) Live() error                            { return nil }

func TestAGroupWithoutInformersIsReadyWhenItsMembersAre(t *testing.T) {
	group, m := newGroup(t), &errMember{ready: errors.New("has not joined")}
	add(t, group, m)
	if err := group.Ready(); !errors.Is(err, m.ready) {
		t.Errorf("at first: %v", err)
	}
	m.ready = nil
	if err := group.Ready(); err != nil {
		t.Errorf("with a member that is ready: %v", err)
	}
}
