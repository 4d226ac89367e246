package debug_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/informertest"
)

// hostile holds names that would do harm if the page did not escape them.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'></svg></style></script><iframe>`, `</bdi></table><form>`,
	`{{.}} ${x} <!-- -->`, "\u202eevil\u2066", "nul\x00byte", "bad\xff\xfeutf8", strings.Repeat("long<b>", 2000), `javascript:alert(1)`,
}

func TestHostileNamesDoNoHarmOnThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tags := func(name string) (html int, whole string) {
			src := informertest.NewSource(object(name, "1"))
			inf := newInformer(t, src, options{Name: name})
			addWatcher(t, inf, stuck, informer.WatcherOptions{Name: name})
			failing := informertest.NewSource[configMap]()
			failing.Fail("list", errors.New(name), -1)
			failing.Fail("watch", errors.New(name), -1)
			store := informertest.NewStore(nil)
			store.Fail(func(string, string) error { return errors.New(name) })
			broken := newInformer(t, informertest.NewSource(object("x", "1")), options{Name: name + "2", Store: store, ErrorHandler: ignore})
			h := debug.Handler(runGroup(t, inf, newInformer(t, failing, options{Name: name + "1", ErrorHandler: ignore}), broken).Health)
			if got := look(t, h); len(got.Informers) != 3 || len(got.Informers[0].Watchers[0].Calls) != 1 {
				t.Errorf("the JSON of %.40q is %+v", name, got)
			}
			whole = page(t, h)
			return strings.Count(whole, "<"), whole
		}
		want, _ := tags("harmless")
		for _, name := range hostile {
			got, whole := tags(name)
			if got != want {
				t.Errorf("with %.40q the page has %d tags, not %d", name, got, want)
			}
			if strings.ContainsRune(whole, 0) {
				t.Errorf("with %.40q the page has a NUL", name)
			}
		}
	})
}

func TestThePageShowsNoContentsOfObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		obj := object("a", "swordfish")
		obj.Labels, obj.Annotations = map[string]string{"l": "swordfish"}, map[string]string{"a": "swordfish"}
		src := informertest.NewSource(obj)
		inf := newInformer(t, src, options{})
		addWatcher(t, inf, stuck, informer.WatcherOptions{})
		h := debug.Handler(runGroup(t, inf).Health)
		for _, format := range []string{"html", "json"} {
			shown := get(h, "/?format="+format).Body.String()
			wantShown(t, shown, "default/a")
			wantHidden(t, shown, "swordfish")
		}
	})
}

// A hostile site may let its own name point at a loopback address (DNS rebinding). Its scripts
// could then read the page, if the page did not look at Host.
func TestASiteWhoseNamePointsAtThisMachineCannotReadThePage(t *testing.T) {
	loopback, elsewhere := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}, &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 8080}
	h := debug.Handler(new(informer.Group).Health)
	for _, test := range []struct {
		host  string
		local net.Addr
		site  string // Sec-Fetch-Site
		want  int
	}{
		{"localhost", loopback, "", http.StatusOK},
		{"LocalHost.:8080", loopback, "", http.StatusOK},
		{"pod.localhost:8080", loopback, "", http.StatusOK},
		{"127.0.0.1:8080", loopback, "", http.StatusOK},
		{"[::1]:8080", loopback, "", http.StatusOK},
		{"[::1]", loopback, "", http.StatusOK},
		{"10.1.2.3:8080", loopback, "", http.StatusOK}, // a proxy in the same Pod sends the Pod's address
		{"", loopback, "", http.StatusOK},              // HTTP/1.0 needs no Host, and no browser omits it

		{"evil.example:8080", loopback, "", http.StatusForbidden},
		{"evil.example", &net.TCPAddr{IP: net.IPv6loopback}, "", http.StatusForbidden},
		{"127.0.0.1.evil.example", loopback, "", http.StatusForbidden},
		{"localhost.evil.example:8080", loopback, "", http.StatusForbidden},
		{"evillocalhost:8080", loopback, "", http.StatusForbidden},
		{"a:b:c", loopback, "", http.StatusForbidden},

		{"pages.example", loopback, "none", http.StatusOK}, // over https, through a proxy
		{"pages.example", elsewhere, "", http.StatusOK},
		{"pages.example", &net.UnixAddr{Name: "page.sock"}, "", http.StatusOK},
	} {
		for _, format := range []string{"html", "json"} {
			r := httptest.NewRequest(http.MethodGet, "/?format="+format, nil)
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, test.local))
			r.Host = test.host
			r.Header.Set("Sec-Fetch-Site", test.site)
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			if answer.Code != test.want || answer.Code != http.StatusOK && !strings.Contains(answer.Body.String(), "must be localhost") {
				t.Errorf("%s for Host %q at %v with Sec-Fetch-Site %q: %d, want %d: %.200s", format, test.host, test.local, test.site, answer.Code, test.want, answer.Body)
			}
		}
	}
	// A real server says itself at which address a request has reached it.
	server := httptest.NewServer(h)
	defer server.Close()
	for host, want := range map[string]int{"": http.StatusOK, "evil.example": http.StatusForbidden} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		must(t, err)
		r.Host = host
		answer, err := server.Client().Do(r)
		must(t, err)
		if _ = answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("a server at %s answers Host %q with %d, want %d", server.URL, host, answer.StatusCode, want)
		}
	}
}
