package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
)

// fact is the MemberHealth of a kind that the package does not know.
type fact struct {
	Copies      int
	started     bool
	ready, live error
}

func (f fact) HasRun() bool { return f.started }
func (f fact) Ready() error { return f.ready }
func (f fact) Live() error  { return f.live }

// acting has a button.
type acting struct {
	fact
	act func() error
}

func (a acting) Action() string            { return "Check" }
func (a acting) Act(context.Context) error { return a.act() }

// silent does not encode itself.
type silent struct{ fact }

func (silent) MarshalJSON() ([]byte, error) { return nil, errors.New("no") }

func TestAMemberOfAnotherKindIsShownWithATableOfItsOwn(t *testing.T) {
	late := errors.New("late")
	all := map[string]informer.MemberHealth{
		"a": fact{started: true, Copies: 12345678}, "b": fact{started: true, ready: late}, "c": fact{ready: late}, "d": fact{started: true, ready: late, live: errors.New("dead")}, "e": silent{}, "f": nil,
	}
	var got struct {
		Members []struct {
			Name, State, Error string
			Attention          bool
			Health             json.RawMessage
		}
	}
	h := debug.Handler(func() map[string]informer.MemberHealth { return all })
	must(t, json.Unmarshal(get(h, "/?format=json").Body.Bytes(), &got))
	var lines []string
	for _, m := range got.Members {
		lines = append(lines, fmt.Sprintf("%s %s %v %s %s", m.Name, m.State, m.Attention, m.Error, strings.Join(strings.Fields(string(m.Health)), "")))
	}
	if diff := cmp.Diff([]string{
		`a ready false  {"Copies":12345678}`, `b not ready true late {"Copies":0}`, `c not started false  {"Copies":0}`, `d not live true dead {"Copies":0}`, "e not started false  ",
	}, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	shown := page(t, h)
	wantShown(t, shown, `<th scope="row"><bdi>Copies</bdi></th><td><bdi>12345678</bdi></td>`,
		`Member <bdi>d</bdi> <span class="state attention">not live</span>`, "2 of 5 members</a> need attention.")
	wantHidden(t, shown, "<form") // no button
}

func TestAButtonWorksOnlyOnAPageOfThisSite(t *testing.T) {
	var did bool
	h := debug.Handler(func() map[string]informer.MemberHealth {
		return map[string]informer.MemberHealth{"a": acting{act: func() error { did = true; return nil }}, "fails": acting{act: func() error { return errors.New("it cannot be checked") }}, "e": fact{}}
	})
	if n := strings.Count(page(t, h), "<button>Check</button>"); n != 2 {
		t.Errorf("the page has %d buttons, not one for each member with an action", n)
	}
	for name, test := range map[string]struct {
		host, member string
		header       map[string]string
		want         int
	}{
		"from the page":                      {"localhost:8080", "a", map[string]string{"Origin": "http://localhost:8080"}, http.StatusSeeOther},
		"from the page at an IP address":     {"10.0.0.1:8080", "a", map[string]string{"Origin": "http://10.0.0.1:8080"}, http.StatusSeeOther},
		"over https":                         {"ops.example", "a", map[string]string{"Origin": "https://ops.example", "Sec-Fetch-Site": "same-origin"}, http.StatusSeeOther},
		"by a program":                       {"[::1]:8080", "a", nil, http.StatusSeeOther},
		"from another site":                  {"localhost:8080", "a", map[string]string{"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"from another site by an old one":    {"localhost:8080", "a", map[string]string{"Origin": "http://evil.example"}, http.StatusForbidden},
		"from a site whose name points here": {"evil.example", "a", map[string]string{"Origin": "http://evil.example"}, http.StatusForbidden},
		"for a member that there is not":     {"localhost", "b", nil, http.StatusNotFound},
		"for a member without an action":     {"localhost", "e", nil, http.StatusNotFound},
		"that fails":                         {"localhost", "fails", nil, http.StatusInternalServerError},
	} {
		did = false
		r := httptest.NewRequest(http.MethodPost, "http://"+test.host+"/debug", strings.NewReader("member="+test.member))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for key, value := range test.header {
			r.Header.Set(key, value)
		}
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		done := answer.Code == http.StatusSeeOther
		if answer.Code != test.want || did != done || done && answer.Header().Get("Location") != "?" {
			t.Errorf("%s: %d %s, pressed: %v, it leads to %q", name, answer.Code, answer.Body, did, answer.Header().Get("Location"))
		}
	}
}

// sometimes has a button only sometimes, and not now.
type sometimes struct {
	fact
	did *bool
}

func (sometimes) Action() string              { return "" }
func (s sometimes) Act(context.Context) error { *s.did = true; return nil }

func TestAMemberWithoutAButtonIsNotCalled(t *testing.T) {
	did := false
	h := debug.Handler(func() map[string]informer.MemberHealth {
		return map[string]informer.MemberHealth{"a": sometimes{did: &did}}
	})
	r := httptest.NewRequest(http.MethodPost, "http://localhost/debug", strings.NewReader("member=a"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	if did || answer.Code != http.StatusNotFound {
		t.Errorf("%d, pressed: %v", answer.Code, did)
	}
}

// net/http recovers a panic of the health function, and serves other requests.
func TestAPanicOfTheHealthFunctionDoesNotBlockLaterRequests(t *testing.T) {
	panics := true
	h := debug.Handler(func() map[string]informer.MemberHealth {
		if panics {
			panic("no health")
		}
		return nil
	})
	press := func() *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/debug", strings.NewReader("member=a"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		return answer
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is not passed on")
			}
		}()
		press()
	}()
	panics = false
	answered := make(chan int, 1)
	go func() { answered <- press().Code }()
	select {
	case code := <-answered:
		if code != http.StatusNotFound {
			t.Errorf("a later POST gets %d", code)
		}
	case <-time.After(10 * time.Second):
		t.Error("a later POST is not answered")
	}
}
