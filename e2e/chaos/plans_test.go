package chaos_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusing answers every request with one of the given codes and the Status that an API server
// sends with it.
func refusing(codes ...int) *plan {
	return &plan{answer: func(w http.ResponseWriter, _ request) bool {
		answerStatus(w, codes[rand.IntN(len(codes))])
		return true
	}}
}

func status(code int) []byte {
	reasons := map[int]metav1.StatusReason{
		http.StatusUnauthorized:        metav1.StatusReasonUnauthorized,
		http.StatusForbidden:           metav1.StatusReasonForbidden,
		http.StatusGone:                metav1.StatusReasonExpired,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
		http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
		http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
	}
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reasons[code], Message: http.StatusText(code) + ", says the front",
	})
	if err != nil {
		panic(err)
	}
	return text
}

func answerStatus(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(status(code))
}

// throttling asks clients to come back later. client-go's clients do so without reporting it.
func throttling() *plan {
	return &plan{answer: func(w http.ResponseWriter, _ request) bool {
		w.Header().Set("Retry-After", "1")
		answerStatus(w, http.StatusTooManyRequests)
		return true
	}}
}

// forgetting refuses to continue a watch, in one of the two ways that API servers have.
func forgetting(w http.ResponseWriter, r request) bool {
	if !r.watch || r.streaming {
		return false
	}
	if rand.IntN(2) == 0 {
		answerStatus(w, http.StatusGone)
		return true
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", status(http.StatusGone))
	return true
}

// breakingPages refuses all watches, so that every informer lists, and fails all pages after
// the first.
func breakingPages() *plan {
	return &plan{answer: func(w http.ResponseWriter, r request) bool {
		if r.next {
			answerStatus(w, []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGone}[rand.IntN(3)])
			return true
		}
		return forgetting(w, r)
	}}
}

// breakingLists refuses all watches and breaks all lists: they are garbage or cut off, with or
// without a connection error.
func breakingLists() *plan {
	return &plan{answer: forgetting, change: func(resp *http.Response, r request) {
		if r.watch {
			breakEvents(resp, rand.IntN(5))
			return
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || len(body) < 2 {
			return
		}
		switch cut := 1 + rand.IntN(len(body)-1); rand.IntN(4) {
		case 0:
			replace(resp, []byte("<html><h1>502 Bad Gateway</h1></html>"), io.EOF)
		case 1:
			replace(resp, bytes.Repeat([]byte{0xff, 0}, 1000), io.EOF)
		case 2:
			replace(resp, body[:cut], io.EOF)
		case 3:
			replace(resp, body[:cut], io.ErrUnexpectedEOF)
		}
	}}
}

// breakingEvents breaks watches off in the middle of an event.
func breakingEvents() *plan {
	return &plan{change: func(resp *http.Response, r request) {
		if r.watch {
			breakEvents(resp, rand.IntN(5))
		}
	}}
}

// breakEvents lets the first pass events through, and breaks the next one.
func breakEvents(resp *http.Response, pass int) {
	ends := []error{io.EOF, io.ErrUnexpectedEOF}
	editing(resp, nil, func(line []byte) ([]byte, error) {
		if pass--; pass >= 0 {
			return line, nil
		}
		switch rand.IntN(3) {
		case 0:
			return []byte("}{ is not JSON\n"), ends[rand.IntN(2)]
		case 1:
			return []byte("\x00\xff\x00\n"), ends[rand.IntN(2)]
		}
		return line[:rand.IntN(len(line))], ends[rand.IntN(2)]
	})
}

// typeOf returns the apiVersion and kind of the requested objects, as JSON.
func typeOf(r request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // apis, group, version, ..., plural
	kind := strings.TrimSuffix(path.Base(r.URL.Path), "s")
	return fmt.Sprintf(`"apiVersion":"%s/%s","kind":"%s"`, parts[1], parts[2], strings.ToUpper(kind[:1])+kind[1:])
}

// malforming adds events and items to the server's answers. These are not objects, or lack
// fields that every object has.
func malforming() *plan {
	return &plan{change: func(resp *http.Response, r request) {
		if !isJSON(resp) {
			return
		}
		if r.watch {
			editing(resp, malformedEvents(r), func(line []byte) ([]byte, error) { return line, nil })
			return
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return
		}
		replace(resp, malformedList(body, r), io.EOF)
	}}
}

// unversioned sends bookmarks without a version before the events.
func unversioned() *plan {
	return &plan{change: func(resp *http.Response, r request) {
		if r.watch && !r.streaming && isJSON(resp) {
			bookmark := `{"type":"BOOKMARK","object":{` + typeOf(r) + `,"metadata":{}}}`
			editing(resp, []byte(bookmark+"\n"), func(line []byte) ([]byte, error) { return line, nil })
		}
	}}
}

func malformedEvents(r request) []byte {
	is := typeOf(r)
	all := []string{
		`{"type":"ADDED","object":null}`,
		`{"type":"ADDED","object":{}}`,
		`{"type":"ADDED","object":[]}`,
		`{"type":"ADDED"}`,
		`{"type":"ADDED","object":{` + is + `}}`,
		`{"type":"MODIFIED","object":{` + is + `,"metadata":null}}`,
		`{"type":"MODIFIED","object":` + string(status(500)) + `}`,
		`{"type":"DELETED","object":{` + is + `,"metadata":{}}}`,
		`{"type":"DELETED","object":{` + is + `,"metadata":{"name":7}}}`,
		`{"type":"SHOUTED","object":{` + is + `,"metadata":{"namespace":"one","name":"x"}}}`,
		`{"type":"","object":{` + is + `,"metadata":{"namespace":"one","name":"x"}}}`,
		`{"type":"ERROR","object":null}`,
		`{"type":"ERROR","object":{}}`,
		`{"type":"ERROR","object":` + string(status(500)) + `}`,
		`{}`,
		`null`,
		`7`,
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return []byte(strings.Join(all[:1+rand.IntN(3)], "\n") + "\n")
}

func malformedList(body []byte, r request) []byte {
	items := []byte(`"items":[`)
	at := bytes.Index(body, items)
	if at < 0 || rand.IntN(4) == 0 {
		return []byte([]string{`null`, `[]`, `7`, `{}`, `{` + typeOf(r) + `}`}[rand.IntN(5)])
	}
	at += len(items)
	item := []string{`null`, `{}`, `[]`, `{"metadata":{}}`, `{` + typeOf(r) + `}`, `{` + typeOf(r) + `,"metadata":null}`}[rand.IntN(6)]
	if body[at] != ']' {
		item += ","
	}
	return []byte(string(body[:at]) + item + string(body[at:]))
}

// lying sends an event for an object that does not exist, of another kind, before the events
// of the server. It also keeps watches short.
func lying() *plan {
	return &plan{change: func(resp *http.Response, r request) {
		if !r.watch || !isJSON(resp) {
			return
		}
		ghost := `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Ghost","metadata":{"namespace":"one","name":"ghost","uid":"ghost","resourceVersion":"1"}}}`
		editing(resp, []byte(ghost+"\n"), func(line []byte) ([]byte, error) { return line, nil })
	}}
}

// inflating makes the objects of watches large.
func inflating() *plan {
	text := strings.Repeat("x", 1<<20)
	return &plan{change: func(resp *http.Response, r request) {
		if !r.watch || !isJSON(resp) {
			return
		}
		left := 2
		editing(resp, nil, func(line []byte) ([]byte, error) {
			spec := []byte(`"spec":{`)
			if left--; left < 0 || !bytes.Contains(line, spec) {
				return line, nil
			}
			return bytes.Replace(line, spec, []byte(`"spec":{"huge":"`+text+`",`), 1), nil
		})
	}}
}
