package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/internal/mix"
)

const (
	burstObjects = 1000
	startVersion = "1000000"
	lastVersion  = "9999999"
)

// pageSize is that of a reflector.
const pageSize = 500

// cannedServer is an API server that sends bodies made before. The first part of a path says in which way it answers.
type cannedServer struct {
	bodies map[string]func() []byte // by way, resource and request, and for a page of a list its number
}

func newCannedServer(sz sizes) *cannedServer {
	s := &cannedServer{bodies: map[string]func() []byte{}}
	for resource, open := range encodings {
		n := sz.resources
		if resource == "pods" {
			n = sz.framedPods
		}
		s.addList("list "+resource, open, n, true)
		s.addList("updates "+resource, open, burstObjects, true)
		s.bodies["stream "+resource+" watch"] = sync.OnceValue(func() []byte { return open().stream(n) })
		s.bodies["updates "+resource+" watch"] = sync.OnceValue(func() []byte { return open().updates(sz.bursts) })
	}
	s.addList("many widgets", encodings["widgets"], sz.each, false)
	s.addList("small pods", smallPods, sz.remotePods, false)
	return s
}

// addList adds a list of n objects as a whole, and in pages too if it is paged.
func (s *cannedServer) addList(name string, open func() encoding, n int, paged bool) {
	s.bodies[name+" list"] = sync.OnceValue(func() []byte { return packed(open().list(0, n, "")) })
	for from := 0; paged && from < n; from += pageSize {
		page, next := from/pageSize, ""
		if from+pageSize < n {
			next = strconv.Itoa(page + 1)
		}
		s.bodies[fmt.Sprint(name, " list ", page)] = sync.OnceValue(func() []byte { return packed(open().list(from, min(n, from+pageSize), next)) })
	}
}

func (s *cannedServer) start() *httptest.Server {
	srv := httptest.NewUnstartedServer(s)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	return srv
}

func (s *cannedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	way, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	resource := strings.TrimRight(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], "0123456789") // many types are alike
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		resource = "metadata"
	}
	q := r.URL.Query()
	watches := q.Get("watch") != ""
	if watches && way != "stream" && q.Get("sendInitialEvents") == "true" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	if resource == "widgets" {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	}
	if watches {
		if body := s.bodies[way+" "+resource+" watch"]; body != nil {
			_, _ = w.Write(body())
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	list := way + " " + resource + " list"
	body := s.bodies[list]
	// A list of any version comes from the server's cache, in one piece.
	if page := s.bodies[list+" "+cmp.Or(q.Get("continue"), "0")]; page != nil && q.Get("limit") != "" && q.Get("resourceVersion") != "0" {
		body = page
	}
	_, _ = w.Write(body())
}

func packed(body []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(body)
	_ = w.Close()
	return out.Bytes()
}

// encoding makes the bodies of a resource.
type encoding struct {
	object   func(i, updates int, version string) []byte
	wrap     func(objects [][]byte, next string) []byte // a list; the next page is asked for with next
	event    func(kind string, object []byte) []byte
	bookmark []byte // the object that ends a first state
}

// encodings has a new encoding of each resource, because a mix is not for several goroutines.
var encodings = map[string]func() encoding{
	"pods": func() encoding {
		m := mix.New(mixSeed, 30_000)
		return binaryEncoding("v1", "Pod", func(i, updates int) message { return m.Pod(i, updates) })
	},
	"metadata": func() encoding {
		return binaryEncoding("meta.k8s.io/v1", "PartialObjectMetadata", func(i, updates int) message {
			return &metav1.PartialObjectMetadata{ObjectMeta: newWidget(i, updates).ObjectMeta}
		})
	},
	"widgets": widgetEncoding,
}

func smallPods() encoding {
	return binaryEncoding("v1", "Pod", func(i, updates int) message { return newPod(i, i, updates) })
}

func (e encoding) list(from, to int, next string) []byte {
	var objects [][]byte
	for i := from; i < to; i++ {
		objects = append(objects, e.object(i, 0, strconv.Itoa(i+1)))
	}
	return e.wrap(objects, next)
}

func (e encoding) stream(n int) (out []byte) {
	for i := range n {
		out = append(out, e.event("ADDED", e.object(i, 0, strconv.Itoa(i+1)))...)
	}
	return append(out, e.event("BOOKMARK", e.bookmark)...)
}

func (e encoding) updates(n int) (out []byte) {
	for i := range n {
		version := strconv.Itoa(1_000_001 + i)
		if i == n-1 {
			version = lastVersion
		}
		out = append(out, e.event("MODIFIED", e.object(i%burstObjects, 1+i/burstObjects%3, version))...)
	}
	return out
}

type message interface {
	metav1.Object
	Marshal() ([]byte, error)
}

func binaryEncoding(apiVersion, kind string, object func(i, updates int) message) encoding {
	end := metav1.ObjectMeta{ResourceVersion: startVersion, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	return encoding{
		object: func(i, updates int, version string) []byte {
			obj := object(i, updates)
			obj.SetResourceVersion(version)
			return marshal(obj)
		},
		wrap: func(objects [][]byte, next string) []byte {
			out := marshal(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: startVersion, Continue: next}})
			for _, raw := range objects {
				out = append(binary.AppendUvarint(append(out, 2<<3|2), uint64(len(raw))), raw...)
			}
			return enveloped(apiVersion, kind+"List", out)
		},
		event: func(of string, raw []byte) []byte {
			e := marshal(&metav1.WatchEvent{Type: of, Object: runtime.RawExtension{Raw: enveloped(apiVersion, kind, raw)}})
			return append(binary.BigEndian.AppendUint32(nil, uint32(len(e))), e...)
		},
		bookmark: marshal(&metav1.PartialObjectMetadata{ObjectMeta: end}),
	}
}

func marshal(obj interface{ Marshal() ([]byte, error) }) []byte {
	body, err := obj.Marshal()
	if err != nil {
		panic(err) // these types can always be encoded
	}
	return body
}

func enveloped(apiVersion, kind string, raw []byte) []byte {
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	return append([]byte("k8s\x00"), marshal(&u)...)
}

// widgetEncoding writes as an API server does, with sorted keys.
func widgetEncoding() encoding {
	return encoding{
		object: func(i, updates int, version string) []byte {
			w := newWidget(i, updates)
			w.ResourceVersion = version
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w)
			if err != nil {
				panic(err) // a Widget can always be converted
			}
			body, err := json.Marshal(content)
			if err != nil {
				panic(err) // maps of strings and numbers can always be encoded
			}
			return body
		},
		wrap: func(objects [][]byte, next string) []byte {
			return fmt.Appendf(nil, `{"apiVersion":%q,"items":[%s],"kind":"WidgetList","metadata":{"continue":%q,"resourceVersion":%q}}`,
				widgetVersion, bytes.Join(objects, []byte(",")), next, startVersion)
		},
		event: func(of string, raw []byte) []byte { return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", of, raw) },
		bookmark: fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Widget","metadata":{"resourceVersion":%q,"annotations":{%q:"true"}}}`,
			widgetVersion, startVersion, metav1.InitialEventsAnnotationKey),
	}
}

// reading is how a child reads from a canned server.
type reading struct {
	URL   string
	Ours  bool
	Plain bool // ours without informer.Transport
}

func (r reading) config() *rest.Config {
	config := &rest.Config{Host: r.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if r.Ours && !r.Plain {
		config.Wrap(informer.Transport)
	}
	return config
}

// cost is what a child takes until its informers have synced, or from then until the last update.
type cost struct {
	CPU, Wall time.Duration
	Peak      float64 // of anonymous memory
	Heap      float64 // live afterwards
}

// measurement returns a measurement of a child in a role, which reads from a server that answers in one way.
func (s *cannedServer) measurement(rows []row, way, role string, argument func(url string, ours bool) any, values func(cost) []float64) measurement {
	return measurement{rows, func(ctx context.Context, side side) ([]float64, error) {
		srv := s.start()
		defer srv.Close()
		var c cost
		err := lab.Measure(ctx, role, argument(srv.URL+"/"+way, side != clientGo), &c)
		return values(c), err
	}}
}
