package source_test

import (
	"bufio"
	"io"
	"net/http"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// A scheme may know a type by another name than its own, which a list of custom resources gives behind its
// items. Then each list but the first three is requested once.
func TestATypeOfAnotherNameIsNotListedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists, watches := 0, 0 // in an hour in which each watch expires at once
		w := newWire()
		w.Odd(func(req *http.Request) testkit.Answer {
			if testkit.IsWatch(req) {
				watches++
				return testkit.Refuses(410, "Expired")
			}
			lists++
			return testkit.Says(200, `{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"a","resourceVersion":"5"}}],"kind":"ThingList","metadata":{"resourceVersion":"7"}}`)
		})
		gv, s := schema.GroupVersion{Group: "example.com", Version: "v1"}, runtime.NewScheme()
		s.AddKnownTypeWithName(gv.WithKind("Thing"), &corev1.ConfigMap{})
		s.AddKnownTypeWithName(gv.WithKind("ThingList"), &corev1.ConfigMapList{})
		metav1.AddToGroupVersion(s, gv)
		config := w.Config()
		config.GroupVersion, config.APIPath = &gv, "/apis"
		config.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
		r := must(rest.RESTClientFor(config))
		client := gentype.NewClientWithList("things", rest.Interface(r), runtime.NewParameterCodec(s), "",
			func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} })
		o := observe(t, informer.ListWatch(client), anyOptions{})
		sleepBubble(time.Hour)
		if twice := lists - watches; watches < 10 || twice < 3 || twice > 4 || o.Health().Objects != 1 { // one list may have no watch yet
			t.Errorf("%d lists and %d watches, %d objects, %v", lists, watches, o.Health().Objects, o.Health().Ready())
		}
	})
}

// byLine is a wrapper outside of the transport that reads a watch line by line.
type byLine struct{ next http.RoundTripper }

func (b byLine) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil && testkit.IsWatch(req) {
		in, out := io.Pipe()
		body := resp.Body
		go func() {
			lines := bufio.NewReader(body)
			for {
				line, err := lines.ReadString('\n')
				if _, broken := io.WriteString(out, line); broken != nil || err != nil {
					_ = out.CloseWithError(err)
					return
				}
			}
		}()
		resp.Body = struct {
			io.Reader
			io.Closer
		}{in, closeBoth{in, body}}
	}
	return resp, err
}

type closeBoth struct{ a, b io.Closer }

func (c closeBoth) Close() error {
	_ = c.a.Close()
	return c.b.Close()
}

// A server ends each event of a watch in JSON with a line feed, and a wrapper may need it.
func TestAWrapperThatReadsLinesDoesNotHoldUpAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		good := strings.Replace(badObject, `"data":7`, `"data":{"value":"1"}`, 1)
		w.Odd(odd(testkit.IsWatch, testkit.Streams(
			`{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1003"}}}`, `{"type":"ADDED","object":`+good+`}`)))
		config := w.Config()
		config.ContentType = runtime.ContentTypeJSON
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return byLine{next} })
		o := observe(t, informer.ListWatch(kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("")), anyOptions{})
		sleepBubble(time.Minute)
		if _, exists, _ := o.Get(keyOf("bad")); !exists {
			t.Errorf("an event has not come: %+v", o.Health())
		}
	})
}

// twice is a wrapper outside of the transport that reads the first answer to a list and makes the request again.
type twice struct{ next http.RoundTripper }

func (w twice) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err != nil || testkit.IsWatch(req) {
		return resp, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return w.next.RoundTrip(req)
}

// The objects of an answer that a wrapper has thrown away are not those of the next.
func TestTheLastAnswerCountsIfAWrapperAsksTwice(t *testing.T) {
	for _, wraps := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			asked := 0
			empty := `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1007"},"items":[]}`
			w.Odd(func(req *http.Request) testkit.Answer {
				switch asked++; {
				case testkit.IsWatch(req):
					return testkit.Hangs
				case asked == 1:
					return testkit.Says(200, strings.Replace(badList, `7}]`, `{}}]`, 1))
				}
				return testkit.Says(200, empty)
			})
			config := w.Config()
			if wraps == 2 {
				config.Wrap(informer.Transport)
			}
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return twice{next} })
			o := observe(t, informer.ListWatch(kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("")), anyOptions{})
			sleepBubble(time.Minute)
			if n := o.Health().Objects; n != 0 || o.Health().ResourceVersion != "1007" {
				t.Errorf("%d objects at %s, want none at 1007", n, o.Health().ResourceVersion)
			}
		})
	}
}

// Wrapped twice, each list is requested once.
func TestATransportTwiceIsLikeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		lists := 0
		w.Odd(func(req *http.Request) testkit.Answer {
			if !testkit.IsWatch(req) {
				lists++
			}
			return nil
		})
		config := w.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return byLine{next} })
		config.Wrap(informer.Transport)
		o := observe(t, informer.ListWatch(kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("")), anyOptions{})
		sleepBubble(time.Minute)
		if lists != 1 || o.Health().Decoding != (informer.DecodingHealth{Objects: 3}) {
			t.Errorf("%d lists, %+v", lists, o.Health().Decoding)
		}
	})
}

// The transport starts no goroutine for a watch, and for one that has nothing to do it keeps a buffer of 4 KiB at most.
func TestAThousandQuietWatches(t *testing.T) {
	const watches = 1000
	cost := func(decode informer.DecodeMode, client func(*testkit.Wire) cache.ListerWatcher) (goroutines int, memory int64) {
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			before := heap()
			for range watches {
				observe(t, client(w), anyOptions{Decode: decode})
			}
			sleepBubble(time.Minute)
			w.Source.Apply(object("a", "2")) // each watch is used once
			sleepBubble(time.Minute)
			goroutines, memory = goruntime.NumGoroutine(), (heap()-before)/watches
		})
		return goroutines, memory
	}
	for name, client := range map[string]func(*testkit.Wire) cache.ListerWatcher{"typed": typedClient, "dynamic": dynamicClient} {
		goroutines, memory := cost(informer.DecodeByClient, client)
		tapped, more := cost(informer.DecodeAuto, client)
		t.Logf("%s: %d goroutines and %d bytes a watch, by the client %d and %d", name, tapped/watches, more, goroutines/watches, memory)
		if tapped > goroutines || more > memory+8<<10 { // with some room for pools
			t.Errorf("%s: %d goroutines and %d bytes a watch, by the client %d and %d", name, tapped, more, goroutines, memory)
		}
	}
}

func heap() int64 {
	var m goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An omitted field is in no object, whichever code decodes it.
func TestNobodyGetsOmittedFields(t *testing.T) {
	for _, contentType := range []string{"", runtime.ContentTypeJSON} { // "" is protobuf
		for _, opts := range []anyOptions{
			{WatchList: informer.WatchListOn}, {WatchList: informer.WatchListOff},
			{WatchList: informer.WatchListOn, Decode: informer.DecodeByClient}, {WatchList: informer.WatchListOff, Decode: informer.DecodeByClient},
		} {
			synctest.Test(t, func(t *testing.T) {
				w := &testkit.Wire{Source: informertest.NewSource(object("a", "1"), object("b", "1"))}
				config := w.Config()
				config.ContentType = contentType
				opts.Omit = []string{"metadata.labels", "immutable"}
				o := observe(t, informer.ListWatch(kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("")), opts)
				sleepBubble(time.Minute)
				w.Source.Apply(object("b", "2"))
				sleepBubble(time.Minute)
				if n := o.Health().Objects; n != 2 {
					t.Errorf("%d objects", n)
				}
				for _, obj := range o.All() {
					if obj.GetLabels() != nil || obj.(*corev1.ConfigMap).Data["value"] == "" {
						t.Errorf("%q, %v: %+v", contentType, opts.Decode, obj)
					}
				}
			})
		}
	}
}

// The drop-in checks the paths with its example.
func TestTheDropInOmitsFields(t *testing.T) {
	for path, want := range map[string]string{"data": "", "immutable": "1", "dat": "nothing"} {
		synctest.Test(t, func(t *testing.T) {
			inf := informer.ClientGo{Options: func(runtime.Object) (anyOptions, error) {
				return anyOptions{Omit: []string{path}, ErrorHandler: testkit.Ignore}, nil
			}}.NewSharedIndexInformer(informertest.NewSource(object("a", "1")), &corev1.ConfigMap{}, 0, nil)
			runUntilTheEnd(t, inf.RunWithContext)
			sleepBubble(time.Minute)
			got := "nothing"
			for _, obj := range inf.GetStore().List() {
				got = obj.(*corev1.ConfigMap).Data["value"]
			}
			if got != want {
				t.Errorf("without %s the data is %q, want %q", path, got, want)
			}
		})
	}
}
