package informer

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
)

var (
	//go:embed debug/page.html
	debugHTML string
	//go:embed debug/page.css
	debugStyle string
	//go:embed debug/page.js
	debugScript string

	debugTemplate = template.Must(template.New("debug").Funcs(template.FuncMap{
		"style":    func() template.CSS { return template.CSS(debugStyle) },
		"script":   func() template.JS { return template.JS(debugScript) },
		"duration": roundDuration,
		"short":    shorten,
	}).Parse(debugHTML))

	// debugPolicy lets the page load nothing but itself, and run nothing but its own script.
	debugPolicy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		hashOf(debugScript), hashOf(debugStyle))
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// DebugHandler returns a handler that shows what the members of g are doing: their
// state, source, store and errors, and of each watcher what waits for it, since when,
// how fast it gets on and what it is being called for. It is one page, which follows
// what happens while it is open, is read without JavaScript too, and loads nothing from
// anywhere else:
//
//	http.Handle("/debug/informers", informer.DebugHandler(&group))
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
// The handler may be used from any goroutine. Without a group it answers 503.
func DebugHandler(g *Group) http.Handler {
	return &debugHandler{group: g}
}

// debugHandler remembers what it has shown for as long as the charts need it.
type debugHandler struct {
	group *Group

	mu     sync.Mutex // protects the rest
	trails map[trailID]*trail
}

func (d *debugHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", debugPolicy)
	switch {
	case d.group == nil:
		http.Error(w, "informer: DebugHandler was given no group", http.StatusServiceUnavailable)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	format, err := debugFormat(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	view := d.view(time.Now())
	var body bytes.Buffer
	if format == "json" {
		h.Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(view)
	} else {
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Referrer-Policy", "no-referrer")
		err = debugTemplate.Execute(&body, view)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(body.Bytes())
}

// debugFormat returns "html" or "json".
func debugFormat(r *http.Request) (string, error) {
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
