package framing

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const (
	mediaJSON     = "application/json"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// Transport wraps next, for rest.Config.Wrap. Requests without a Tap pass through it unchanged.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next} }

type transport struct{ next http.RoundTripper }

// WrappedRoundTripper returns the inner RoundTripper, for client-go.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip replaces the body of an answer for which there is a Tap. It does not read the body
// itself, because client-go would repeat the request if RoundTrip returned an error.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	tap, _ := r.Context().Value(key{}).(*Tap)
	if tap == nil {
		return t.next.RoundTrip(r)
	}
	// Without the tap, a Transport inside leaves the answer alone. So each answer comes here once.
	resp, err := t.next.RoundTrip(r.WithContext(With(r.Context(), nil)))
	if err != nil {
		return resp, err
	}
	b, why := tap.body(r, resp)
	if b == nil {
		tap.leave(why)
		return resp, nil
	}
	resp.Body = b
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	return resp, nil
}

// body returns the body that replaces resp.Body, or nil and the reason why resp.Body stays. It replaces only the body of
// the first answer, if that is a 200 to a GET, not encoded, and in JSON or, for types with protobuf, in protobuf.
func (t *Tap) body(r *http.Request, resp *http.Response) (b *body, why string) {
	if resp.StatusCode != http.StatusOK || resp.Body == nil || r.Method != http.MethodGet {
		return nil, "status " + strconv.Itoa(resp.StatusCode)
	}
	// The header is missing if http.Transport requested the encoding itself.
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, "Content-Encoding " + e
	}
	contentType := resp.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || media != mediaJSON && (media != mediaProtobuf || !t.Type.protobuf()) {
		return nil, "Content-Type " + contentType
	}
	gv, ok := groupVersion(r.URL.Path)
	if !ok {
		return nil, "a path of no API group"
	}
	w := r.URL.Query().Get("watch")
	live := w == "true" || w == "1"
	if !t.Type.ok {
		return nil, "no type"
	}
	if live && t.Events == nil || !live && t.Item == nil {
		return nil, "another request"
	}
	if !t.taken.CompareAndSwap(false, true) {
		t.misfit.Store(true) // a RoundTripper outside may have dropped the first
		return nil, "a second answer"
	}
	b = &body{
		tap: t, real: resp.Body, ctx: r.Context(), closed: make(chan struct{}),
		live: live, binary: media == mediaProtobuf, gv: gv,
		in: window{from: resp.Body, next: listBuffer},
	}
	if live {
		b.in.next = watchBuffer
	}
	return b, ""
}

// groupVersion returns the apiVersion of the objects at a path such as
// …/apis/apps/v1/namespaces/x/deployments.
func groupVersion(path string) (string, bool) {
	s := strings.Split(strings.Trim(path, "/"), "/")
	n := len(s) - 1 // of what precedes the resource
	if n > 3 && s[n-2] == "namespaces" {
		n -= 2
	}
	switch {
	case n >= 3 && s[n-3] == "apis":
		return s[n-2] + "/" + s[n-1], true
	case n >= 2 && s[n-2] == "api":
		return s[n-1], true
	}
	return "", false
}
