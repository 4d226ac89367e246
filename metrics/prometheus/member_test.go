package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

// From here to the test is all that a program writes to add a kind of member: a mirror copies the objects of
// an informer to some other place.

type mirror struct {
	started atomic.Bool
	behind  atomic.Int64 // how many objects are not copied
}

func (m *mirror) Name() string                      { return "backup" }
func (m *mirror) WaitForSync(context.Context) error { return nil }

func (m *mirror) MemberHealth() informer.MemberHealth {
	return mirrorHealth{m, m.started.Load(), m.behind.Load()}
}

func (m *mirror) Run(ctx context.Context) error {
	m.started.Store(true)
	informer.Report(ctx, errors.New("the other place is slow"))
	<-ctx.Done()
	return nil
}

// mirrorHealth is the value that the page shows.
type mirrorHealth struct {
	mirror  *mirror
	started bool
	Behind  int64 `json:"behind"`
}

func (h mirrorHealth) HasRun() bool   { return h.started }
func (h mirrorHealth) Live() error    { return nil }
func (h mirrorHealth) Action() string { return "Copy again" }
func (h mirrorHealth) Act(context.Context) error {
	h.mirror.behind.Store(0)
	return nil
}
func (h mirrorHealth) Ready() error {
	if h.Behind > 0 {
		return fmt.Errorf("mirror backup: %d objects are not copied", h.Behind)
	}
	return nil
}

// parkedSet is the health of a set of package kinds.
type parkedSet struct{}

func (parkedSet) HasRun() bool                 { return true }
func (parkedSet) Ready() error                 { return nil }
func (parkedSet) Live() error                  { return nil }
func (parkedSet) Parked() (int, time.Duration) { return 2, 90 * time.Second }

func TestAKindOfMemberThatTheModuleDoesNotKnowIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reported := &mirror{}, make(chan error, 1)
		m.behind.Store(7)
		group := informer.Group{ErrorHandler: func(_ context.Context, err error) { reported <- err }}
		must(t, group.Add(m))
		page := debug.Handler(group.Health)
		ask := func(method, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, "http://localhost/", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			answer := httptest.NewRecorder()
			page.ServeHTTP(answer, r)
			return answer
		}
		check := func(err error, ready float64) {
			t.Helper()
			if got := group.Ready(); fmt.Sprint(got) != fmt.Sprint(err) {
				t.Errorf("Ready: %v", got)
			}
			of(t, scrape(t, registered(prometheus.New(group.Health))), "", values{`informer_member_ready{member="backup"}`: ready, `informer_member_live{member="backup"}`: 1})
		}
		stop := informertest.Run(t, &group)
		if err := <-reported; err.Error() != "the other place is slow" {
			t.Errorf("reported: %v", err)
		}
		check(errors.New("mirror backup: 7 objects are not copied"), 0)
		shown := ask(http.MethodGet, "").Body.String()
		for _, want := range []string{`Member <bdi>backup</bdi>`, `>not ready</span>`, `<bdi>behind</bdi></th><td><bdi>7</bdi>`, `<bdi>mirror backup: 7 objects are not copied</bdi>`, `<button>Copy again</button>`} {
			if !strings.Contains(shown, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
		if answer := ask(http.MethodPost, "member=backup"); answer.Code != http.StatusSeeOther {
			t.Errorf("the button: %d %s", answer.Code, answer.Body)
		}
		check(nil, 1)
		stop()
	})
	// Package kinds is not imported, and its figures are shown.
	of(t, scrape(t, registered(prometheus.New(func() map[string]informer.MemberHealth { return map[string]informer.MemberHealth{"kinds": parkedSet{}} }))), "",
		values{`informer_member_ready{member="kinds"}`: 1, `informer_member_live{member="kinds"}`: 1, `informer_kinds_parked{member="kinds"}`: 2, `informer_kinds_parked_seconds{member="kinds"}`: 90})
	// The alert for every kind of member.
	if rules, err := os.ReadFile("alerts.yaml"); err != nil || !strings.Contains(string(rules), "expr: informer_member_ready == 0\n") {
		t.Errorf("alerts.yaml has no alert about informer_member_ready (%v)", err)
	}
}
