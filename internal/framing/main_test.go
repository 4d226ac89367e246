package framing_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/framing"
)

const (
	mediaJSON     = "application/json"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go logs each cut body
	goleak.VerifyTestMain(m)
}

// A client is a client of Pods, or of their metadata, that gets answers in one encoding.
type client struct {
	name             string
	binary           bool
	apiVersion, kind string // of the objects that it gets
	typ              framing.Type
	list             func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch            func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// newClients returns all clients there are.
func newClients(config *rest.Config) []client {
	config.QPS = -1
	h := must(rest.HTTPClientFor(config))
	protobuf := rest.CopyConfig(config)
	protobuf.ContentType = mediaProtobuf
	inProtobuf := must(typed.NewForConfigAndClient(protobuf, h)).Pods("")
	inJSON := must(typed.NewForConfigAndClient(config, h)).Pods("")
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	raw := must(dynamic.NewForConfigAndClient(config, h)).Resource(pods)
	partial := must(metadata.NewForConfigAndClient(config, h)).Resource(pods)
	const group = "meta.k8s.io/v1"
	return []client{
		{"protobuf", true, "v1", "Pod", typeOf[*corev1.PodList](), lister(inProtobuf.List), inProtobuf.Watch},
		{"JSON", false, "v1", "Pod", typeOf[*corev1.PodList](), lister(inJSON.List), inJSON.Watch},
		{"dynamic", false, "v1", "Pod", typeOf[*unstructured.UnstructuredList](), lister(raw.List), raw.Watch},
		{"metadata", true, group, "PartialObjectMetadata", typeOf[*metav1.PartialObjectMetadataList](), lister(partial.List), partial.Watch},
		{"metadata JSON", false, group, "PartialObjectMetadata", typeOf[*metav1.PartialObjectMetadataList](), lister(partial.List), partial.Watch},
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func typeOf[L any]() framing.Type {
	t, ok := framing.TypeOf(reflect.TypeFor[L]())
	if !ok {
		panic("no type")
	}
	return t
}

func lister[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

func (c client) isDynamic() bool { return c.name == "dynamic" }

// object returns an object as the client gets it in a list.
func (c client) object(i int) runtime.Object {
	m := metav1.ObjectMeta{
		Namespace: "ns", Name: fmt.Sprint("p", i), UID: "u", ResourceVersion: fmt.Sprint(i + 1),
		Labels: map[string]string{"a\"]}": "}\\\"{[,"}, CreationTimestamp: metav1.Unix(1e9, 0),
	}
	if c.kind != "Pod" {
		return &metav1.PartialObjectMetadata{ObjectMeta: m}
	}
	s := corev1.PodSpec{NodeName: strings.Repeat("ñ\\", 300*(i%3/2)), Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	return &corev1.Pod{ObjectMeta: m, Spec: s}
}

type protobufMessage interface{ Marshal() ([]byte, error) }

// encode returns an object, or a list, with its type.
func (c client) encode(apiVersion, kind string, obj runtime.Object) []byte {
	if c.binary {
		return envelope(apiVersion, kind, must(obj.(protobufMessage).Marshal()))
	}
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	return must(json.Marshal(obj))
}

func envelope(apiVersion, kind string, raw []byte) []byte {
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	return append([]byte("k8s\x00"), must(u.Marshal())...)
}

// listBody returns a list of n objects. Its keys are sorted as those of custom resources are, or
// in the order of built-in types.
func (c client) listBody(n int, sorted bool) []byte {
	left := int64(5)
	lm := metav1.ListMeta{ResourceVersion: "77", Continue: "next", RemainingItemCount: &left}
	var list runtime.Object = &corev1.PodList{ListMeta: lm}
	if c.kind != "Pod" {
		list = &metav1.PartialObjectMetadataList{ListMeta: lm}
	}
	items := make([]runtime.Object, n)
	for i := range items {
		items[i] = c.object(i)
	}
	check(meta.SetList(list, items))
	body := c.encode(c.apiVersion, c.kind+"List", list)
	if sorted && !c.binary {
		var m map[string]any
		check(json.Unmarshal(body, &m))
		for _, item := range m["items"].([]any) {
			item.(map[string]any)["apiVersion"], item.(map[string]any)["kind"] = c.apiVersion, c.kind
		}
		body = append(must(json.Marshal(m)), '\n')
	}
	return body
}

// event returns an event of a watch. Its object was encoded.
func (c client) event(kind string, object []byte) []byte {
	if !c.binary {
		return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", kind, object)
	}
	e := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}}
	return frame(must(e.Marshal()))
}

func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// watchBody returns a watch of n objects, with bookmarks, that ends with an ERROR.
func (c client) watchBody(n int) (body []byte) {
	for i := range n {
		o := c.object(i)
		body = append(body, c.event([]string{"ADDED", "MODIFIED", "DELETED"}[i%3], c.encode(c.apiVersion, c.kind, o))...)
		if i%4 == 1 {
			body = append(body, c.event("BOOKMARK", c.encode(c.apiVersion, c.kind, o))...)
		}
	}
	gone := &metav1.Status{Status: "Failure", Reason: metav1.StatusReasonExpired, Code: 410, Message: "too old"}
	return append(body, c.event("ERROR", c.encode("v1", "Status", gone))...)
}

// answers is a RoundTripper whose answer the context of a request has.
type answers struct{}

func (answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return r.Context().Value(answers{}).(func(*http.Request) *http.Response)(r), nil
}

// inMemory are clients that get their answers from a context.
var inMemory = newClients(&rest.Config{Host: "http://server", Transport: framing.Transport(answers{})})

// serving returns a context whose requests the body answers.
func (c client) serving(ctx context.Context, body io.Reader) context.Context {
	return context.WithValue(ctx, answers{}, func(r *http.Request) *http.Response {
		header := http.Header{"Content-Type": {mediaJSON}}
		if c.binary {
			header.Set("Content-Type", mediaProtobuf+";stream=watch")
		}
		return &http.Response{StatusCode: http.StatusOK, Header: header, Request: r, Body: closer(body)}
	})
}

func closer(body io.Reader) io.ReadCloser {
	if c, ok := body.(io.ReadCloser); ok {
		return c
	}
	return io.NopCloser(body)
}

// A result is what a client gets.
type result struct {
	err    string
	list   runtime.Object   // without its items
	items  []runtime.Object // those of the tap, if there is an error
	events []watch.Event
}

// get sends a request. Without a tap the transport does nothing.
func (c client) get(ctx context.Context, live, tapped bool) (result, *framing.Tap) {
	var r result
	tap := &framing.Tap{Type: c.typ}
	events := make(chan watch.Event, 2)
	if live {
		tap.Events = events
	} else {
		tap.Item = func(o runtime.Object) error { r.items = append(r.items, o); return nil }
	}
	if tapped {
		ctx = framing.With(ctx, tap)
	}
	if live {
		w, err := c.watch(ctx, metav1.ListOptions{})
		if err != nil {
			return result{err: err.Error()}, tap
		}
		r.events = merge(events, w.ResultChan())
		w.Stop()
		return r, tap
	}
	list, err := c.list(ctx, metav1.ListOptions{})
	if err != nil {
		// The text quotes the list, of which the items are gone.
		text, _, _ := strings.Cut(err.Error(), " is missing in ")
		return result{err: text, items: r.items}, tap
	}
	r.list = list
	if items := must(meta.ExtractList(list)); len(items) > 0 {
		r.items = items
	}
	reflect.ValueOf(list).Elem().FieldByName("Items").SetZero()
	return r, tap
}

// merge returns the events of a tap and of client-go in their order.
func merge(tapped, rest <-chan watch.Event) (all []watch.Event) {
	for {
		var e watch.Event
		open := true
		select {
		case e = <-tapped:
			if e.Type == framing.Mark {
				e, open = <-rest
			}
		case e, open = <-rest:
			for ready := true; ready; {
				select {
				case before := <-tapped:
					if ready = before.Type != framing.Mark; ready {
						all = append(all, before)
					}
				default:
					ready = false
				}
			}
		}
		if !open {
			return all
		}
		all = append(all, e)
	}
}

// both compares what a client gets from a body with and without a tap. It returns the result with
// the tap. The body is a new one each time.
func (c client) both(t *testing.T, live bool, body func() io.Reader) (got result, tap *framing.Tap) {
	t.Helper()
	want, _ := c.get(c.serving(t.Context(), body()), live, false)
	got, tap = c.get(c.serving(t.Context(), body()), live, true)
	compare(t, want, got, tap)
	return got, tap
}

// compare reports if a client would do something else because of a tap.
func compare(t *testing.T, want, got result, tap *framing.Tap) {
	t.Helper()
	if tap.Misfit() && got.err == "" {
		return // the list is requested again without a tap
	}
	for i, e := range got.events {
		if _, bad := e.Object.(*framing.Undecodable); bad {
			if i != len(want.events)-1 || want.events[i].Type != watch.Error {
				t.Errorf("event %d is said to be not decodable, but client-go got %s", i, text(want.events))
				return
			}
			want.events, got.events = want.events[:i], got.events[:i]
			break
		}
	}
	for i, o := range got.items {
		if _, bad := o.(*framing.Undecodable); bad && want.err == "" {
			t.Errorf("item %d is said to be not decodable, but client-go got %s", i, text(want.items))
		} else if bad {
			return
		}
	}
	if want.err != got.err || want.err == "" && !reflect.DeepEqual(want.list, got.list) {
		t.Errorf("list %s, error:\n%s\nwithout a tap %s, error:\n%s", text(got.list), got.err, text(want.list), want.err)
	} else if want.err == "" && len(want.items)+len(got.items) > 0 && !reflect.DeepEqual(want.items, got.items) {
		t.Errorf("items:\n%s\nwithout a tap:\n%s", text(got.items), text(want.items))
	}
	if len(want.events)+len(got.events) > 0 && !reflect.DeepEqual(want.events, got.events) {
		t.Errorf("events:\n%s\nwithout a tap:\n%s", text(got.events), text(want.events))
	}
}

// text returns the beginning of a value as JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%#v", v)
	}
	return string(b[:min(len(b), 3000)])
}
