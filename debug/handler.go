// Package debug shows what the informers of a program are doing, as a live page and as JSON.
package debug

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/customcacheinformer/informer"
)

var (
	//go:embed page.html
	html string
	//go:embed page.css
	style string
	//go:embed page.js
	script string

	pageTemplate = template.Must(template.New("debug").Funcs(template.FuncMap{
		"style":    func() template.CSS { return template.CSS(style) },
		"script":   func() template.JS { return template.JS(script) },
		"duration": roundDuration,
		"short":    shorten,
	}).Parse(html))

	// policy lets the page load nothing but itself, and run nothing but its own script.
	policy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		hashOf(script), hashOf(style))
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Handler returns a handler that shows what the informers are doing that health returns,
// such as the method Health of an informer.Group: their
// state, source, store and errors, and of each watcher what waits for it, since when,
// how fast it gets on and what it is being called for. It is one page, which follows
// what happens while it is open, is read without JavaScript too, and loads nothing from
// anywhere else:
//
//	http.Handle("/debug/informers", debug.Handler(group.Health))
//
// With ?format=json, or for who accepts application/json and not text/html, the same
// comes as JSON: a "time", and "informers", each with its "name", "state", "attention"
// (whether somebody should look after it), "store", "health" as Health encodes it, and
// "watchers". A watcher has "name", "state", "attention", "stats" as WatcherStats encodes
// them, "calls" and "retries" (keys that it is being called for, and that wait for another
// attempt), "eventsPerSecond", and the "backlog" of the last minute.
//
// It shows names, keys of the objects that watchers are called for, counts and the text
// of errors, never what is in an object; still it is for the eyes of operators, so serve
// it where only they come. It reads only, and takes no other method than GET and HEAD.
// It does not block, whatever hangs, and costs nothing while nobody looks: rates and
// charts are of what was seen while somebody did, in the last minute. So it takes two
// looks to know a rate, and ten seconds of looking to call a watcher blocked rather than
// behind.
//
// The handler may be used from any goroutine. Handler panics if health is nil, because
// that is a mistake in the program.
func Handler(health func() map[string]informer.Health) http.Handler {
	if health == nil {
		panic("informer/debug: Handler was given no function")
	}
	return &handler{health: health}
}

// handler remembers what it has shown for as long as the charts need it.
type handler struct {
	health func() map[string]informer.Health

	mu     sync.Mutex // protects the rest
	trails map[trailID]*trail
}

func (d *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", policy)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	format, err := formatOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	shown := d.view(time.Now())
	var body bytes.Buffer
	if format == "json" {
		h.Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(shown)
	} else {
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Referrer-Policy", "no-referrer")
		err = pageTemplate.Execute(&body, shown)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body.Bytes())
}

// formatOf returns "html" or "json".
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

// preference returns how much who asks prefers a media type that is named, 0 if it is
// not.
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

// roundDuration returns d as people read it.
func roundDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
}
