package framing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/framing"
)

// broken returns an object that cannot be decoded, without its envelope. Its metadata can be read
// if readable. It returns nil if the client reads nothing else than metadata.
func (c client) broken(readable bool) []byte {
	if c.binary {
		m := must((&metav1.ObjectMeta{Namespace: "ns", Name: "bad"}).Marshal())
		if !readable {
			m[0] = 0xff
		}
		return []byte(field(1, string(m)) + field(2, "\xff\xff") + "\x1a\x7f")
	}
	labels, spec := `{}`, `5`
	if !readable {
		labels = `7`
	}
	if c.isDynamic() {
		spec = `1e999`
	} else if readable && c.kind != "Pod" {
		return nil
	}
	return []byte(`{"kind":"` + c.kind + `","apiVersion":"` + c.apiVersion +
		`","metadata":{"namespace":"ns","name":"bad","labels":` + labels + `},"spec":` + spec + `}`)
}

func TestUndecodable(t *testing.T) {
	isBad := func(t *testing.T, o runtime.Object) {
		t.Helper()
		u, ok := o.(*framing.Undecodable)
		if !ok || u.Namespace != "ns" || u.Name != "bad" || u.Err == nil {
			t.Fatalf("got %s, want an object that is not decodable", text(o))
		}
		if !reflect.DeepEqual(u, u.DeepCopyObject()) {
			t.Error("its copy is different")
		}
	}
	for _, c := range inMemory {
		for _, readable := range []bool{true, false} {
			raw := c.broken(readable)
			if raw == nil {
				continue
			}
			good := c.encode(c.apiVersion, c.kind, c.object(0))
			list := fmt.Appendf(nil, `{"apiVersion":%q,"items":[%s,%s,%[2]s],"kind":"%[4]sList"}`, c.apiVersion, good, raw, c.kind)
			envelope := raw
			if c.binary {
				item := field(2, string(must(c.object(0).(protobufMessage).Marshal())))
				typ := func(kind string) string { return field(1, field(1, c.apiVersion), field(2, kind)) }
				list = []byte("k8s\x00" + typ(c.kind+"List") + field(2, item, field(2, string(raw)), item))
				envelope = []byte("k8s\x00" + typ(c.kind) + field(2, string(raw)))
			}
			got, tap := c.both(t, false, func() io.Reader { return bytes.NewReader(list) })
			if readable {
				if len(got.items) != 3 || tap.Misfit() || got.err != "" {
					t.Fatalf("%s: items %s, error %q", c.name, text(got.items), got.err)
				}
				isBad(t, got.items[1])
				if !reflect.DeepEqual(got.items[0], got.items[2]) || reflect.TypeOf(got.items[0]) == reflect.TypeOf(got.items[1]) {
					t.Errorf("%s: the other items are %s", c.name, text(got.items))
				}
			} else if got.err == "" {
				t.Errorf("%s: client-go found no error in a list", c.name)
			}
			watch := bytes.Join([][]byte{c.event("ADDED", good), c.event("MODIFIED", envelope), c.event("DELETED", good)}, nil)
			got, _ = c.both(t, true, func() io.Reader { return bytes.NewReader(watch) })
			if readable {
				if len(got.events) != 3 || got.events[1].Type != "MODIFIED" || got.events[2].Type != "DELETED" {
					t.Fatalf("%s: events %s", c.name, text(got.events))
				}
				isBad(t, got.events[1].Object)
			} else if len(got.events) != 2 || got.events[1].Type != "ERROR" {
				t.Errorf("%s: events %s", c.name, text(got.events))
			}
		}
	}
}

// TestLeft has answers that go client-go's way.
func TestLeft(t *testing.T) {
	pods := typeOf[*corev1.PodList]()
	list := func() *framing.Tap { return &framing.Tap{Type: pods, Item: func(runtime.Object) error { return nil }} }
	used := list()
	get(t, t.Context(), used, "/api/v1/pods", mediaJSON, strings.NewReader("{}"))
	header := func(fields ...string) http.Header {
		h := http.Header{"Content-Length": {"0"}}
		for i := 0; i < len(fields); i += 2 {
			h.Set(fields[i], fields[i+1])
		}
		return h
	}
	const path, typ, encoding = "/api/v1/pods", "Content-Type", "Content-Encoding"
	json := header(typ, mediaJSON)
	live := func() *framing.Tap { return &framing.Tap{Type: pods, Events: make(chan<- watch.Event)} }
	for _, c := range []struct {
		tap    *framing.Tap
		path   string
		header http.Header
		status int
		why    string // or "taken", or "" without a tap
	}{
		{list(), path, json, 200, "taken"},
		{list(), path, header(typ, mediaJSON+"; charset=utf-8", encoding, "identity"), 200, "taken"},
		{list(), path, header(typ, mediaProtobuf), 200, "taken"},
		{live(), path + "?watch=1", json, 200, "taken"},
		{nil, path, json, 200, ""},
		{used, path, json, 200, "a second answer"},
		{&framing.Tap{Item: list().Item}, path, json, 200, "no type"},
		{list(), path, json, 404, "status 404"},
		{list(), path, json, 206, "status 206"},
		{list(), path, header(typ, mediaJSON, encoding, "gzip"), 200, "Content-Encoding gzip"},
		{list(), path, header(typ, "application/cbor"), 200, "Content-Type application/cbor"},
		{list(), path, header(typ, "application/json-seq"), 200, "Content-Type application/json-seq"},
		{list(), path, header(typ, ";"), 200, "Content-Type ;"},
		{list(), path, header(), 200, "Content-Type "},
		{&framing.Tap{Type: inMemory[2].typ, Item: list().Item}, path, header(typ, mediaProtobuf), 200, "Content-Type " + mediaProtobuf},
		{list(), "/version", json, 200, "a path of no API group"},
		{list(), path + "?watch=true", json, 200, "another request"},
		{live(), path, json, 200, "another request"},
	} {
		ctx := t.Context()
		if c.tap != nil {
			ctx = framing.With(ctx, c.tap)
		}
		body := io.NopCloser(strings.NewReader(""))
		r := must(http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+c.path, http.NoBody))
		resp := must(framing.Transport(roundTrip(func(*http.Request) (*http.Response, error) { //nolint:bodyclose // it has nothing to close
			return &http.Response{StatusCode: c.status, Header: c.header.Clone(), Body: body}, nil
		})).RoundTrip(r)) //nolint:bodyclose // as above
		taken := c.why == "taken"
		if (resp.Body != body) != taken || (resp.ContentLength == -1) != taken || (resp.Header.Get("Content-Length") == "") != taken {
			t.Errorf("%+v: body %T, headers %v", c, resp.Body, resp.Header)
		}
		if c.tap != nil && (c.tap.Why() != strings.TrimPrefix(c.why, "taken") || c.tap.Used() != (taken || c.tap == used)) {
			t.Errorf("%+v: left because of %q", c, c.tap.Why())
		}
	}
	failure := errors.New("no connection")
	next := roundTrip(func(*http.Request) (*http.Response, error) { return nil, failure })
	outside := framing.Transport(next)
	if _, err := outside.RoundTrip(must(http.NewRequest(http.MethodGet, "/", http.NoBody))); !errors.Is(err, failure) { //nolint:bodyclose // there is none
		t.Errorf("RoundTrip returned %v", err)
	}
	if w, ok := outside.(net.RoundTripperWrapper); !ok || w.WrappedRoundTripper() == nil {
		t.Error("client-go does not find the RoundTripper inside")
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// get returns the body of an answer that passed a Transport twice.
func get(t *testing.T, ctx context.Context, tap *framing.Tap, path, media string, body io.Reader) io.ReadCloser {
	t.Helper()
	next := roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {media}}, Body: closer(body)}, nil
	})
	r := must(http.NewRequestWithContext(framing.With(ctx, tap), http.MethodGet, "http://server"+path, http.NoBody))
	return must(framing.Transport(framing.Transport(next)).RoundTrip(r)).Body //nolint:bodyclose // the caller closes it
}

const (
	podList  = `{"kind":"PodList","apiVersion":"v1","items":[{},{},{}]}`
	podAdded = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}`
)

// TestErrorsStay reads on after an error: client-go does that.
func TestErrorsStay(t *testing.T) {
	failure := errors.New("failure")
	for _, c := range []struct {
		body  io.Reader
		item  error
		count int
		rest  string
		want  error
	}{
		{strings.NewReader(podList), nil, 3, `{"kind":"PodList","apiVersion":"v1","items":[]}`, io.EOF},
		{strings.NewReader(podList), failure, 1, `{"kind":"PodList","apiVersion":"v1","items":[`, failure},
		{io.MultiReader(strings.NewReader(podList[:49]), &flaky{errs: []error{failure, nil}}), nil, 1, `{"kind":"PodList","apiVersion":"v1","items":[null,{`, failure},
		{io.MultiReader(strings.NewReader(podList), &flaky{errs: []error{failure, nil}}), nil, 3, `{"kind":"PodList","apiVersion":"v1","items":[]}`, failure},
		{&flaky{errs: make([]error, 1000)}, nil, 0, ``, io.ErrNoProgress},
	} {
		tap := &framing.Tap{Type: typeOf[*corev1.PodList](), Item: func(runtime.Object) error { return c.item }}
		b := get(t, t.Context(), tap, "/api/v1/pods", mediaJSON, c.body)
		var rest []byte
		if n, err := b.Read(nil); n != 0 || err != nil {
			t.Errorf("a Read of nothing returned %d, %v", n, err)
		}
		for one := make([]byte, 1); ; {
			n, err := b.Read(one)
			if rest = append(rest, one[:n]...); err == nil {
				continue
			}
			for range 3 {
				if n != 0 || !errors.Is(err, c.want) {
					t.Errorf("Read returned %d, %v, want %v", n, err, c.want)
				}
				n, err = b.Read(one)
			}
			break
		}
		if string(rest) != c.rest || tap.Count() != c.count {
			t.Errorf("%d objects tapped, and %s is left, want %d and %s", tap.Count(), rest, c.count, c.rest)
		}
	}
}

// A flaky reader returns each error once, with no bytes.
type flaky struct{ errs []error }

func (f *flaky) Read([]byte) (int, error) {
	err := f.errs[0]
	f.errs = append(f.errs[1:], err)
	return 0, err
}

// TestSendEnds ends a Read that sends an event, or a Mark, that is not received.
func TestSendEnds(t *testing.T) {
	bookmark := strings.Replace(podAdded, "ADDED", "BOOKMARK", 1)
	for _, body := range []string{podAdded, bookmark, "garbage"} {
		for _, closes := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tap := &framing.Tap{Type: typeOf[*corev1.PodList](), Events: make(chan watch.Event)}
				b := get(t, ctx, tap, "/api/v1/pods?watch=true", mediaJSON, strings.NewReader(body))
				done := make(chan error)
				go func() {
					_, err := io.Copy(io.Discard, b)
					done <- err
				}()
				synctest.Wait()
				if closes {
					_ = b.Close()
					_ = b.Close()
				} else {
					cancel()
				}
				if err := <-done; err == nil || !closes && !errors.Is(err, context.Canceled) {
					t.Errorf("Read returned %v", err)
				}
			})
		}
	}
}

// TestStopEnds stops a watch of client-go while its events are sent, or when it is idle.
func TestStopEnds(t *testing.T) {
	for _, body := range []string{podAdded, " "} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			c := inMemory[1]
			ctx := framing.With(c.serving(t.Context(), r), &framing.Tap{Type: c.typ, Events: make(chan watch.Event)})
			watching := must(c.watch(ctx, metav1.ListOptions{}))
			_, _ = io.WriteString(w, body)
			synctest.Wait()
			watching.Stop()
			for e := range watching.ResultChan() {
				if e.Type != watch.Error { // as client-go reports a closed body
					t.Errorf("an event %v", e)
				}
			}
		})
	}
}

// TestTypeOf has the list types whose objects can be tapped.
func TestTypeOf(t *testing.T) {
	type PodList struct{ Items []corev1.Pod }
	type OtherList struct{ Items []corev1.Pod }
	for typ, want := range map[any]bool{
		(*corev1.PodList)(nil): true, (*PodList)(nil): true, (*metav1.PartialObjectMetadataList)(nil): true,
		(*unstructured.UnstructuredList)(nil): true, (*unstructured.Unstructured)(nil): false, (*OtherList)(nil): false,
		(*corev1.Pod)(nil): false, (*metav1.List)(nil): false, (*metav1.APIGroupList)(nil): false, (*int)(nil): false, 5: false,
	} {
		if got, ok := framing.TypeOf(reflect.TypeOf(typ)); ok != want || got.OK() != want {
			t.Errorf("TypeOf(%T) returned %t", typ, ok)
		}
	}
}
