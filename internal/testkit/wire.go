package testkit

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
)

// Undecodable is a value for Object. A [Wire] sends an object with this value so that a typed client
// can decode only its metadata.
const Undecodable = "undecodable"

// ConfigMaps is the resource that a [Wire] serves.
var ConfigMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// Answer returns the answer to a request, or an error of the connection.
type Answer func(req *http.Request) (*http.Response, error)

// Wire is an http.RoundTripper between client-go's real clients and a Source. It answers as an API
// server does, unless the function given to Odd returns another answer. It opens no connection.
type Wire struct {
	Source *Source

	mu  sync.Mutex
	odd func(req *http.Request) Answer // may be nil
}

// Odd sets a function that returns an odd answer to a request, or nil if the Source should answer.
func (w *Wire) Odd(odd func(req *http.Request) Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.odd = odd
}

// Config returns the configuration of a client of w. Unless the environment variable INFORMER_DECODE is
// "client", informers decode what the client gets.
func (w *Wire) Config() *rest.Config {
	c := &rest.Config{Host: "http://api", Transport: w, QPS: -1}
	c.Wrap(informer.Transport)
	return c
}

// RoundTrip answers a request.
func (w *Wire) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	w.mu.Lock()
	odd := w.odd
	w.mu.Unlock()
	answer := Answer(nil)
	if odd != nil {
		answer = odd(req)
	}
	if answer == nil {
		answer = w.serve
	}
	if resp, err = answer(req); resp != nil {
		resp.Request = req
	}
	return resp, err
}

// IsWatch reports whether a request asks for a watch, including a stream of the first state.
func IsWatch(req *http.Request) bool { return req.URL.Query().Has("watch") }

// IsStream reports whether a request asks for a stream of the first state.
func IsStream(req *http.Request) bool { return req.URL.Query().Has("sendInitialEvents") }

// IsProbe reports whether a request is a LIST with limit 1.
func IsProbe(req *http.Request) bool { return !IsWatch(req) && req.URL.Query().Get("limit") == "1" }

// Says returns an Answer with a status code, a body and a header. header has names and values in turn.
func Says(code int, body string, header ...string) Answer {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {"application/json"}}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

// Refuses returns an Answer with a Status of this code and reason. header is as for Says.
func Refuses(code int, reason metav1.StatusReason, header ...string) Answer {
	return Says(code, StatusText(code, reason), header...)
}

// StatusText returns a Status as JSON.
func StatusText(code int, reason metav1.StatusReason) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"no: %s"}`, reason, code, reason)
}

// Refusals are answers that refuse a request: of API servers, proxies and other servers.
var Refusals = map[string]Answer{
	"400": Refuses(400, "BadRequest"), "401": Refuses(401, "Unauthorized"), "403": Refuses(403, "Forbidden"), "404": Refuses(404, "NotFound"),
	"405": Refuses(405, "MethodNotAllowed"), "410": Refuses(410, "Expired"), "410 without a reason": Says(410, "gone"), "422": Refuses(422, "Invalid"),
	"429": Refuses(429, "TooManyRequests"), "500": Refuses(500, "InternalError"), "503": Refuses(503, "ServiceUnavailable"),
	"500 of a proxy": Says(500, "<html>", "Content-Type", "text/html"), "HTML": Says(200, "<html>", "Content-Type", "text/html"),
	"HTML that claims to be JSON": Says(200, "<html>"), "nothing": Says(200, ""),
}

// Streams returns an Answer with a stream that begins with lines and stays open until the request ends.
func Streams(lines ...string) Answer {
	return func(req *http.Request) (*http.Response, error) {
		return stream(req, func(send func(string) error) {
			for _, line := range lines {
				_ = send(line + "\n")
			}
			<-req.Context().Done()
		}), nil
	}
}

// Hangs is an Answer that blocks until the request ends, and returns the error of its ctx.
func Hangs(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// Breaks returns an Answer that returns err, as if the connection broke.
func Breaks(err error) Answer {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// stream returns an answer with the events that run sends. run is called on a new goroutine. Once the
// request ends, send returns an error.
func stream(req *http.Request, run func(send func(event string) error)) *http.Response {
	in, out := io.Pipe()
	context.AfterFunc(req.Context(), func() { _ = out.CloseWithError(req.Context().Err()) })
	go func() {
		defer func() { _ = out.Close() }()
		run(func(event string) error { _, err := io.WriteString(out, event); return err })
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: in}
}

// protobuf reports whether a client asks for whole objects as protobuf.
func protobuf(req *http.Request) bool {
	return strings.HasPrefix(req.Header.Get("Accept"), runtime.ContentTypeProtobuf+",") || req.Header.Get("Accept") == runtime.ContentTypeProtobuf
}

// serve is the Answer of the Source.
func (w *Wire) serve(req *http.Request) (*http.Response, error) {
	opts := metav1.ListOptions{}
	if err := scheme.ParameterCodec.DecodeParameters(req.URL.Query(), corev1.SchemeGroupVersion, &opts); err != nil {
		return nil, err
	}
	var status apierrors.APIStatus
	if IsWatch(req) {
		events, err := w.Source.WatchWithContext(req.Context(), opts)
		if errors.As(err, &status) {
			return Says(int(status.Status().Code), text(status.Status()))(req)
		} else if err != nil {
			return nil, err
		}
		resp := stream(req, func(send func(string) error) {
			defer events.Stop()
			for e := range events.ResultChan() {
				event := fmt.Sprintf("{\"type\":%q,\"object\":%s}\n", e.Type, text(e.Object))
				if protobuf(req) {
					event = frame(marshal(&metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: enveloped(e.Object)}}))
				}
				if send(event) != nil {
					return
				}
			}
		})
		if protobuf(req) {
			resp.Header.Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		}
		return resp, nil
	}
	list, err := w.Source.ListWithContext(req.Context(), opts)
	if errors.As(err, &status) {
		return Says(int(status.Status().Code), text(status.Status()))(req)
	} else if err != nil {
		return nil, err
	}
	objs, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	meta := metav1.ListMeta{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue()}
	if protobuf(req) {
		raw := marshal(&corev1.ConfigMapList{ListMeta: meta})
		for _, obj := range objs {
			item := marshal(obj)
			raw = append(binary.AppendUvarint(append(raw, 2<<3|2), uint64(len(item))), item...)
		}
		return Says(http.StatusOK, string(inEnvelope("ConfigMapList", raw)), "Content-Type", runtime.ContentTypeProtobuf)(req)
	}
	items := []json.RawMessage{}
	for _, obj := range objs {
		items = append(items, json.RawMessage(text(obj)))
	}
	return Says(http.StatusOK, text(map[string]any{"kind": "ConfigMapList", "apiVersion": "v1", "items": items, "metadata": meta}))(req)
}

// enveloped returns an object in the form in which an API server sends it as protobuf.
func enveloped(obj runtime.Object) []byte {
	return inEnvelope(strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1."), marshal(obj))
}

func inEnvelope(kind string, raw []byte) []byte {
	return append([]byte("k8s\x00"), marshal(&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw})...)
}

// frame returns an event with its length before it, as in a watch in protobuf.
func frame(event []byte) string {
	return string(append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...))
}

func marshal(obj any) []byte {
	body, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		panic(err) // these types can always be encoded
	}
	if o, ok := obj.(ConfigMap); ok && o.Data["value"] == Undecodable {
		body = append(body, 2<<3, 0) // a number in the place of a map
	}
	return body
}

// text returns obj as JSON. A ConfigMap or a Status gets its kind.
func text(obj any) string {
	switch o := obj.(type) {
	case ConfigMap:
		o = o.DeepCopy()
		o.Kind, o.APIVersion = "ConfigMap", "v1"
		obj = o
		if o.Data["value"] == Undecodable {
			obj = map[string]any{"kind": o.Kind, "apiVersion": o.APIVersion, "metadata": o.ObjectMeta, "data": 7}
		}
	case metav1.Status:
		o.Kind, o.APIVersion = "Status", "v1"
		obj = o
	case *metav1.Status:
		return text(*o)
	}
	body, err := json.Marshal(obj)
	if err != nil {
		panic(err) // these types can always be encoded
	}
	return string(body)
}
