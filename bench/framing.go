package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	metadataclient "k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/internal/mix"
	"github.com/customcacheinformer/informer/share"
)

// decoding is the argument of a process that starts one informer over a canned server.
type decoding struct {
	URL     string
	Client  string // "pods", "typed", "dynamic" or "metadata"
	Ours    bool
	Early   bool
	Share   bool
	Omit    bool // no managed fields; client-go's informer has a transform for that
	DropIn  bool // ours is a ClientGo, which has the transform, too
	Whole   bool
	Updates bool // wait for the last update, too
}

// decodingCost is what that takes until the informer has synced, or from then until the last update.
type decodingCost struct {
	CPU, Wall time.Duration
	Peak      float64 // of anonymous memory
}

func framingSection(sz sizes) section {
	canned := sync.OnceValue(func() *cannedServer { return newCannedServer(sz) })
	s := section{
		name:  "framing",
		title: "From the body of an answer to the object",
		about: fmt.Sprintf("A canned API server in another process sends %s custom resources of 0.9 kB as JSON, or %s Pods of the mix (package internal/mix) as protobuf, over HTTP/2 and TLS; "+
			"lists are compressed if the client asks for it, as client-go does. Each measurement is a process of its own. Its CPU time, with that of the collector, is from the start until the informer has synced and its "+
			"one handler was called for all. Our side has config.Wrap(informer.Transport), client-go's informer does not. The peak is of anonymous memory, sampled each 5 ms. ",
			lab.Thousands(sz.resources), lab.Thousands(sz.framedPods)) +
			fmt.Sprintf("Updates are %s, sent as fast as the client reads them, for %s objects; the figure is from the sync until the last one, per update.", lab.Thousands(sz.bursts), lab.Thousands(burstObjects)),
		oneQueue: true,
	}
	add := func(name, way string, d decoding, floors ...floor) {
		rows := []row{{name: name + ": CPU", unit: "ms"}, {name: name + ": time", unit: "ms"}, {name: name + ": peak", unit: "MiB"}}
		scale := time.Millisecond
		if d.Updates {
			rows = []row{{name: name + ": CPU per update", unit: "µs"}, {name: name + ": time per update", unit: "µs"}}
			scale = time.Microsecond * time.Duration(sz.bursts)
		}
		for i, f := range floors {
			rows[i].floor = f
		}
		s.cases = append(s.cases, measurement{rows, func(ctx context.Context, side side) ([]float64, error) {
			d := d
			d.Ours = side != clientGo
			var cost decodingCost
			err := canned().serve(way, func(url string) error {
				d.URL = url
				return lab.Measure(ctx, "decoding", d, &cost)
			})
			if err != nil {
				return nil, err
			}
			values := []float64{float64(cost.CPU) / float64(scale), float64(cost.Wall) / float64(scale), cost.Peak / lab.MiB}
			return values[:len(rows)], nil
		}})
	}
	for _, client := range []string{"dynamic", "typed", "metadata"} {
		add("custom resources, "+client+" client, listed", "list", decoding{Client: client}, atMost(0.6))
		add("custom resources, "+client+" client, streamed", "stream", decoding{Client: client}, atMost(0.5))
	}
	add("custom resources, dynamic client, listed, IntakeEarly", "list", decoding{Client: "dynamic", Early: true}, atMost(0.6))
	add("custom resources, dynamic client, listed, Share", "list", decoding{Client: "dynamic", Share: true})
	add("custom resources, dynamic client, listed, without managed fields", "list", decoding{Client: "dynamic", Omit: true}, atMost(0.6))
	add("custom resources, typed client, listed, without managed fields", "list", decoding{Client: "typed", Omit: true}, atMost(0.6))
	add("Pods, protobuf, listed, without managed fields", "list", decoding{Client: "pods", Omit: true}, atMost(1.1), floor{}, atMost(0.75))
	add("Pods, protobuf, listed, drop-in with a transform", "list", decoding{Client: "pods", Omit: true, DropIn: true})
	add("Pods, protobuf, listed, drop-in with a transform, IntakeWhole", "list", decoding{Client: "pods", Omit: true, DropIn: true, Whole: true})
	add("Pods, protobuf, listed", "list", decoding{Client: "pods"}, atMost(1.1), floor{}, atMost(0.75))
	add("Pods, protobuf, streamed", "stream", decoding{Client: "pods"}, atMost(0.85))
	add("custom resources, dynamic client", "updates", decoding{Client: "dynamic", Updates: true}, atMost(0.6))
	add("Pods, protobuf", "updates", decoding{Client: "pods", Updates: true}, atMost(0.9))
	return s
}

func (d decoding) measure() (decodingCost, error) {
	config := &rest.Config{Host: d.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if d.Ours {
		config.Wrap(informer.Transport)
	}
	switch d.Client {
	case "pods":
		return decode[*corev1.Pod](d, informer.ListWatch(kubernetes.NewForConfigOrDie(config).CoreV1().Pods("")))
	case "typed":
		client, err := newWidgets(config)
		if err != nil {
			return decodingCost{}, err
		}
		return decode[*Widget](d, informer.ListWatch(client))
	case "metadata":
		return decode[*metav1.PartialObjectMetadata](d, informer.ListWatch(metadataclient.NewForConfigOrDie(config).Resource(widgetResource)))
	}
	return decode[*unstructured.Unstructured](d, informer.ListWatch(dynamic.NewForConfigOrDie(config).Resource(widgetResource)))
}

// decode runs an informer over a source.
func decode[T informer.Object](d decoding, lw cache.ListerWatcher) (decodingCost, error) {
	l := lab.NewLaunch()
	theirs := newShared[T](lw)
	if d.Ours && d.DropIn {
		var opts informer.Options[informer.AnyObject]
		if d.Whole {
			opts.Intake = informer.IntakeWhole
		}
		theirs.SharedIndexInformer = informer.ClientGo{Options: func(runtime.Object) (informer.Options[informer.AnyObject], error) { return opts, nil }}.
			NewSharedIndexInformer(lw, example[T](), 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	if d.Omit {
		if err := theirs.SetTransform(withoutManagedFields); err != nil {
			return decodingCost{}, err
		}
	}
	var inf subject[T] = theirs
	if d.Ours && !d.DropIn {
		opts := informer.Options[T]{Queue: informer.QueueRealFIFO}
		if d.Early {
			opts.Intake = informer.IntakeEarly
		}
		if d.Share {
			opts.Share = share.New()
		}
		if d.Omit {
			opts.Omit = []string{"metadata.managedFields"}
		}
		ours, err := informer.NewFrom(lw, opts)
		if err != nil {
			return decodingCost{}, err
		}
		inf = custom[T]{ours}
	}
	last := make(chan struct{})
	reg, err := inf.add(func(obj T) {
		if obj.GetResourceVersion() == lastVersion {
			close(last)
		}
	}, everyEvent)
	if err != nil {
		return decodingCost{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), measuring)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- inf.run(ctx) }()
	wait := func(done <-chan struct{}) error {
		select {
		case <-done:
			return nil
		case err := <-ended:
			return errors.Join(errors.New("the informer ended"), err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := wait(reg.synced); err != nil {
		return decodingCost{}, err
	}
	l.Done()
	cost := decodingCost{l.CPU, l.All, l.Peak}
	if d.Updates {
		if err := wait(last); err != nil {
			return decodingCost{}, err
		}
		cost.CPU, cost.Wall = lab.CPU()-cost.CPU, l.Since()-cost.Wall
	}
	return cost, nil
}

func withoutManagedFields(obj any) (any, error) {
	return informer.StripManagedFields(obj.(informer.AnyObject))
}

const (
	burstObjects = 1000
	startVersion = "1000000"
	lastVersion  = "9999999"
)

// cannedServer is an API server that sends bodies made before.
type cannedServer struct {
	cached map[string]func() []byte
	pages  map[string]func() [][]byte
}

// pageSize is that of a reflector.
const pageSize = 500

func newCannedServer(sz sizes) *cannedServer {
	s := &cannedServer{cached: map[string]func() []byte{}, pages: map[string]func() [][]byte{}}
	for _, resource := range []string{"pods", "widgets", "metadata"} {
		objects := map[string]int{"list": sz.resources, "stream": sz.resources, "updates": burstObjects}
		if resource == "pods" {
			objects = map[string]int{"list": sz.framedPods, "stream": sz.framedPods, "updates": burstObjects}
		}
		made := makers[resource]
		for _, way := range []string{"list", "updates"} {
			s.cached[way+" "+resource+" list"] = sync.OnceValue(func() []byte { return packed(made.list(0, objects[way], "")) })
			s.pages[way+" "+resource] = sync.OnceValue(func() [][]byte { return made.pages(objects[way]) })
		}
		s.cached["stream "+resource+" watch"] = sync.OnceValue(func() []byte { return made.stream(objects["stream"]) })
		s.cached["updates "+resource+" watch"] = sync.OnceValue(func() []byte { return made.updates(sz.bursts) })
	}
	s.cached["many widgets list"] = sync.OnceValue(func() []byte { return packed(widgetList(0, sz.each, "")) })
	return s
}

// serve calls measure with the address of the server, which answers in one way.
func (s *cannedServer) serve(way string, measure func(url string) error) error {
	srv := httptest.NewUnstartedServer(s)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	return measure(srv.URL + "/" + way)
}

func packed(body []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(body)
	_ = w.Close()
	return out.Bytes()
}

func (s *cannedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	way, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	resource := strings.TrimRight(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], "0123456789") // many types are alike
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		resource = "metadata"
	}
	q := r.URL.Query()
	op := "list"
	if q.Get("watch") != "" {
		op = "watch"
	}
	if (q.Get("sendInitialEvents") == "true") != (way == "stream" && op == "watch") {
		if op == "watch" && way != "stream" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
			return
		}
	}
	made := makers[resource]
	w.Header().Set("Content-Type", made.contentType)
	if op == "list" {
		w.Header().Set("Content-Encoding", "gzip")
	}
	// A list of any version comes from the server's cache, in one piece.
	if pages := s.pages[way+" "+resource]; op == "list" && pages != nil && q.Get("limit") != "" && q.Get("resourceVersion") != "0" {
		page, _ := strconv.Atoi(q.Get("continue"))
		_, _ = w.Write(pages()[page])
	} else if body := s.cached[way+" "+resource+" "+op]; body != nil {
		_, _ = w.Write(body())
	}
	if op == "watch" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// maker makes the bodies of a resource.
type maker struct {
	contentType string
	list        func(from, to int, next string) []byte // next is what the next page is asked for with
	stream      func(n int) []byte
	updates     func(n int) []byte
}

func (m maker) pages(n int) (all [][]byte) {
	for from := 0; from < n; from += pageSize {
		next := ""
		if from+pageSize < n {
			next = fmt.Sprint(len(all) + 1)
		}
		all = append(all, packed(m.list(from, min(n, from+pageSize), next)))
	}
	return all
}

var makers = map[string]maker{
	"pods": binaryMaker("v1", "Pod", func() func(i, turn int) message {
		m := mix.New(mixSeed, 30_000)
		return func(i, turn int) message { return m.Pod(i, turn) }
	}),
	"widgets": {"application/json", widgetList, widgetStream, widgetUpdates},
	"metadata": binaryMaker("meta.k8s.io/v1", "PartialObjectMetadata", func() func(i, turn int) message {
		return func(i, turn int) message {
			return &metav1.PartialObjectMetadata{ObjectMeta: newWidget(i, turn).ObjectMeta}
		}
	}),
}

type message interface {
	metav1.Object
	Marshal() ([]byte, error)
}

func binaryMaker(apiVersion, kind string, open func() func(i, turn int) message) maker {
	encoded := func(object func(i, turn int) message, i, turn int, version string) []byte {
		obj := object(i, turn)
		obj.SetResourceVersion(version)
		return marshal(obj)
	}
	event := func(kind, apiVersion, of string, raw []byte) []byte {
		e := marshal(&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: enveloped(apiVersion, of, raw)}})
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(e))), e...)
	}
	return maker{
		contentType: runtime.ContentTypeProtobuf,
		list: func(from, to int, next string) []byte {
			object, out := open(), marshal(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: startVersion, Continue: next}})
			for i := from; i < to; i++ {
				raw := encoded(object, i, 0, fmt.Sprint(i+1))
				out = append(binary.AppendUvarint(append(out, 2<<3|2), uint64(len(raw))), raw...)
			}
			return enveloped(apiVersion, kind+"List", out)
		},
		stream: func(n int) (out []byte) {
			object := open()
			for i := range n {
				out = append(out, event("ADDED", apiVersion, kind, encoded(object, i, 0, fmt.Sprint(i+1)))...)
			}
			end := metav1.ObjectMeta{ResourceVersion: startVersion, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
			return append(out, event("BOOKMARK", apiVersion, kind, marshal(&metav1.PartialObjectMetadata{ObjectMeta: end}))...)
		},
		updates: func(n int) (out []byte) {
			object := open()
			for i := range n {
				out = append(out, event("MODIFIED", apiVersion, kind, encoded(object, i%burstObjects, 1+i/burstObjects%3, versionOf(i, n)))...)
			}
			return out
		},
	}
}

// versionOf returns the version of update i of n.
func versionOf(i, n int) string {
	if i == n-1 {
		return lastVersion
	}
	return fmt.Sprint(1_000_001 + i)
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

func widgetList(from, to int, next string) []byte {
	var items []json.RawMessage
	for i := from; i < to; i++ {
		items = append(items, widgetJSON(newWidget(i, 0)))
	}
	return sorted(map[string]any{"apiVersion": widgetVersion, "kind": "WidgetList", "items": items, "metadata": map[string]any{"continue": next, "resourceVersion": startVersion}})
}

func widgetStream(n int) (out []byte) {
	for i := range n {
		out = fmt.Appendf(out, `{"type":"ADDED","object":%s}`+"\n", widgetJSON(newWidget(i, 0)))
	}
	return fmt.Appendf(out, `{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":"Widget","metadata":{"resourceVersion":%q,"annotations":{%q:"true"}}}}`+"\n",
		widgetVersion, startVersion, metav1.InitialEventsAnnotationKey)
}

func widgetUpdates(n int) (out []byte) {
	for i := range n {
		w := newWidget(i%burstObjects, 1+i/burstObjects)
		w.ResourceVersion = versionOf(i, n)
		out = fmt.Appendf(out, `{"type":"MODIFIED","object":%s}`+"\n", widgetJSON(w))
	}
	return out
}

// widgetJSON returns a custom resource as an API server writes it, with sorted keys.
func widgetJSON(w *Widget) []byte {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w)
	if err != nil {
		panic(err) // a Widget can always be converted
	}
	return sorted(content)
}

func sorted(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings and numbers can always be encoded
	}
	return body
}
