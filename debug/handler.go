package debug

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/customcacheinformer/informer"
)

// Handler returns a handler that serves a live page about informers, controllers, sets and other members.
// health must return the Health of each by name, as the method Health of an [informer.Group] does:
//
//	http.Handle("/debug/informers", debug.Handler(group.Health))
//
// The page begins with the members that need attention. In each part of the page, controllers come first,
// followed by sets, other members and informers, each sorted by name. A member that is well takes one line,
// which can be opened. In names, keys and errors, invisible characters are shown as escapes such as ‹U+202E›.
// The page updates itself once a second, or every 5 s in a browser without JavaScript. It loads nothing from
// other addresses. docs/operations.md explains the states of an informer, of a controller ([enqueue.Health])
// and of a set ([shards.Health]), and which of them need attention.
//
// For a Health of another type, the page shows a table of the fields of its JSON. The member needs attention if
// Live returns an error, or if it has run and Ready returns an error. If its Health has the methods Action()
// string and Act(context.Context) error, and Action does not return "", the page has a button with the text of
// Action. The button calls Act with the ctx of the request, and shows its error.
//
// With ?format=json, or for a client that prefers application/json to text/html, the answer is JSON: an object
// with "time", "informers", "controllers" and "sets", and with "members" if there are other members. Each entry
// has "name", "state", "attention" (true if a person should look at it) and "health" (the JSON of its Health).
// All except informers also have "error" if there is one: why a controller cannot sync, why a set cannot read its Leases
// or may not join, or why another member is not ready or not live. In addition:
//
//   - An informer has "store" and "watchers". A watcher has "name", "state", "attention" and "stats" (as
//     [informer.WatcherStats] encodes them). It also has "calls" (the keys that it is being called for),
//     "retries" (the keys that wait for another attempt), "eventsPerSecond", and "backlog" (the
//     events that waited during the last minute: each point has "secondsAgo" and "pending").
//   - A controller has "calls" (the calls under way: each has "key", "seconds" and "attention") and "failures"
//     (the failing keys: each has "key", "seconds" since it first failed, "failures" in a row, "gaveUp", the
//     time "nextTry", the last "error" and "attention"), at most ten of each.
//
// The page shows names, keys of objects, counts and the text of errors, never the content of objects. It checks
// no permissions, so serve it where only operators have access. It only reads, except for a POST with the name
// of a "member" that has a button. A POST from the page of another site gets 403.
//
// A site that an operator visits could let its own name point at the operator's machine (DNS rebinding), to
// read the page. So the handler checks every POST, and every request to a loopback address, such as one through
// kubectl port-forward. It answers 403 unless the Host is localhost, a name that ends in .localhost, or an IP
// address, or the request has the header Sec-Fetch-Site. Scripts cannot set that header, and browsers send it
// only to localhost or over https, for which the site has no certificate. If the clients of a proxy in the same
// Pod are not browsers or do not use https, the proxy must set Host to localhost.
//
// A request calls health, and blocks only if health does, or a POST if the Act of a member does; [informer.Group.Health]
// does not block. Nothing runs between requests. Rates and charts come from the requests of the last minute. A rate needs two requests. To tell
// whether a watcher without Workers or Retry is blocked or only behind, the handler needs requests that are at
// least 10 s apart.
//
// The handler may be used from any goroutine. health is called for one request at a time. If
// health is nil, the handler answers 503.
func Handler(health func() map[string]informer.MemberHealth) http.Handler {
	return http.NewCrossOriginProtection().Handler(&handler{health: health})
}

type handler struct {
	health func() map[string]informer.MemberHealth

	mu     sync.Mutex         // held for a whole look, so that trails are in the order of time
	trails map[trailID]*trail // of the watchers that the last look found
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", policy)
	if rebound(r) {
		http.Error(w, fmt.Sprintf("informer/debug: the Host of a POST, or of a request to a loopback address, is %q. It must be localhost, "+
			"a name that ends in .localhost, or an IP address: any other name may be that of a hostile site.", r.Host), http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		header.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "only GET, HEAD and POST", http.StatusMethodNotAllowed)
		return
	}
	format, err := formatOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if h.health == nil {
		http.Error(w, "informer/debug: Handler was given no health function", http.StatusServiceUnavailable)
		return
	}
	if r.Method == http.MethodPost {
		name := r.PostFormValue("member")
		act(w, r, name, h.member(name))
		return
	}
	shown := h.look()
	var body bytes.Buffer
	if format == "json" {
		header.Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(shown)
	} else {
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Referrer-Policy", "no-referrer")
		err = page.Execute(&body, shown)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body.Bytes())
}

// member returns the health of one member, or nil. The function of the user may panic, and net/http then continues with other
// requests.
func (h *handler) member(name string) informer.MemberHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.health()[name]
}

// rebound reports whether r may come from a script of a site whose name points here. A browser sends the name
// of the site as Host, and a script cannot change it. Handler has the rule.
func rebound(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if (!ok || !local.IP.IsLoopback()) && r.Method != http.MethodPost || r.Header.Get("Sec-Fetch-Site") != "" {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "" {
		return false
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host != "localhost" && !strings.HasSuffix(host, ".localhost")
}

// formatOf returns "html" or "json", or an error if the request asks for another format.
func formatOf(r *http.Request) (string, error) {
	switch format := r.URL.Query().Get("format"); format {
	case "html", "json":
		return format, nil
	case "":
		if preference(r, "application/json") > preference(r, "text/html") {
			return "json", nil
		}
		return "html", nil
	default:
		return "", fmt.Errorf("format is %q, neither html nor json", format)
	}
}

// preference returns the weight of a media type in the Accept header, or 0 if the header does not name the
// type. A wildcard does not count.
func preference(r *http.Request, mediaType string) float64 {
	for _, accepted := range strings.Split(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if named, params, err := mime.ParseMediaType(accepted); err == nil && named == mediaType {
			if q, err := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64); err == nil {
				return q
			}
		}
	}
	return 0
}
