package source_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

const (
	badObject = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"default","name":"bad","uid":"bad","resourceVersion":"1004"},"data":7}`
	badList   = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1004"},"items":[` +
		`{"metadata":{"namespace":"default","name":"good","uid":"good","resourceVersion":"1002"},"data":{"value":"1"}},` + badObject + `]}`
)

// Without informer.Transport, one object that cannot be decoded makes every list and watch of a typed client
// fail. The error leads to the remedy.
func TestTheErrorOfAnObjectThatCannotBeDecodedLeadsToTheRemedy(t *testing.T) {
	for name, answers := range map[string]func(*http.Request) testkit.Answer{
		"in a list":  toLists(testkit.Says(200, badList)),
		"in a watch": odd(testkit.IsWatch, testkit.Streams(`{"type":"ADDED","object":`+badObject+`}`)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				w.Odd(answers)
				o := observe(t, typedClient(w), anyOptions{Decode: informer.DecodeByClient})
				sleepBubble(time.Minute)
				if told, _ := o.take(); len(told) != 1 || !strings.Contains(told[0], "docs/operations.md") || !strings.Contains(told[0], "Transport") {
					t.Errorf("reported %q", told)
				}
			})
		})
	}
}

// An aggregator resets the stream of a watch when the server behind it dies. client-go cannot decode that, but no object is to blame.
func TestTheErrorOfAStreamThatBreaksLeadsToNoRemedyForObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.Odd(odd(testkit.IsWatch, func(req *http.Request) (*http.Response, error) {
			answer, err := testkit.Says(200, "")(req)
			answer.Body = io.NopCloser(iotest.ErrReader(errors.New("stream error: stream ID 3; INTERNAL_ERROR; received from peer")))
			return answer, err
		}))
		o := observe(t, typedClient(w), anyOptions{Decode: informer.DecodeByClient})
		sleepBubble(time.Minute)
		if told, _ := o.take(); len(told) != 1 || !strings.Contains(told[0], "INTERNAL_ERROR") || strings.Contains(told[0], "Transport") {
			t.Errorf("reported %q", told)
		}
	})
}

// With informer.Transport, such an object keeps its last state, and the others go on.
func TestAnObjectThatCannotBeDecodedKeepsItsLastState(t *testing.T) {
	for _, contentType := range []string{"", runtime.ContentTypeJSON} { // "" is protobuf
		for _, opts := range []anyOptions{
			{WatchList: informer.WatchListOn, Intake: informer.IntakeWhole, Queue: informer.QueueRealFIFO},
			{WatchList: informer.WatchListOn, Intake: informer.IntakeEarly, Queue: informer.QueueDeltaFIFO},
			{WatchList: informer.WatchListOff, Intake: informer.IntakeWhole, Queue: informer.QueueDeltaFIFO},
			{WatchList: informer.WatchListOff, Intake: informer.IntakeEarly, Queue: informer.QueueRealFIFO, PageSize: 1},
		} {
			t.Run(fmt.Sprint(contentType, opts.WatchList, opts.Intake), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkLastState(t, contentType, opts) })
			})
		}
	}
}

// values returns the data of ConfigMaps by name.
func values(objs map[types.NamespacedName]informer.AnyObject) map[string]string {
	got := map[string]string{}
	for key, obj := range objs {
		got[key.Name] = obj.(*corev1.ConfigMap).Data["value"]
	}
	return got
}

func checkLastState(t *testing.T, contentType string, opts anyOptions) {
	w := &testkit.Wire{Source: informertest.NewSource(object("a", "1"), object("bad", testkit.Undecodable), object("c", "1"))}
	config := w.Config()
	config.ContentType = contentType
	o := observe(t, informer.ListWatch(kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("")), opts)
	check := func(when string, wantTold int, wantDeleted []string, want map[string]string, failing ...string) {
		t.Helper()
		sleepBubble(time.Minute)
		told, deleted := o.take()
		if len(told) != wantTold || wantTold > 0 && !strings.HasPrefix(told[0], "decode default/") {
			t.Errorf("%s: reported %q, want %d reports", when, told, wantTold)
		}
		got := values(maps.Collect(o.All()))
		if !maps.Equal(got, want) || !slices.Equal(deleted, wantDeleted) || o.Health().Ready() != nil || !slices.Equal(o.Health().UndecodableKeys, failing) {
			t.Errorf("%s: the store has %v, want %v; deleted: %q, want %q; cannot be decoded: %q, want %q; %v",
				when, got, want, deleted, wantDeleted, o.Health().UndecodableKeys, failing, o.Health().Ready())
		}
	}
	relist := func() {
		w.Source.Expire()
		w.Source.Disconnect()
	}

	check("at first", 1, nil, map[string]string{"a": "1", "c": "1"}, "default/bad")
	w.Source.Apply(object("bad", "2"))
	check("mended", 0, nil, map[string]string{"a": "1", "bad": "2", "c": "1"})
	w.Source.Apply(object("a", testkit.Undecodable))
	w.Source.Apply(object("bad", testkit.Undecodable))
	w.Source.Apply(object("c", "2"))
	check("updated", 2, nil, map[string]string{"a": "1", "bad": "2", "c": "2"}, "default/a", "default/bad")
	relist()
	w.Source.Apply(object("d", "1"))
	check("listed again", 0, nil, map[string]string{"a": "1", "bad": "2", "c": "2", "d": "1"}, "default/a", "default/bad")
	_, _ = w.Source.Delete(keyOf("bad"))
	check("deleted", 0, []string{"bad"}, map[string]string{"a": "1", "c": "2", "d": "1"}, "default/a")
	relist()
	_, _ = w.Source.Delete(keyOf("a"))
	check("gone in a list", 0, []string{"a"}, map[string]string{"c": "2", "d": "1"})
	w.Source.Apply(object("a", "3"))
	check("created again", 0, nil, map[string]string{"a": "3", "c": "2", "d": "1"})
}

// Another remedy: the dynamic client, and a Transform that decodes.
func TestATransformThatDecodesLeavesOutAnObjectThatCannotBeDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.Odd(func(req *http.Request) testkit.Answer {
			if testkit.IsWatch(req) {
				mended := strings.Replace(strings.Replace(badObject, "1004", "1005", 1), `"data":7`, `"data":{"value":"7"}`, 1)
				return func(req *http.Request) (*http.Response, error) {
					sleepUntil(req.Context(), time.Minute)
					return testkit.Streams(`{"type":"MODIFIED","object":` + mended + `}`)(req)
				}
			}
			return testkit.Says(200, badList)
		})
		o := observe(t, dynamicClient(w), anyOptions{
			Transform: func(obj informer.AnyObject) (informer.AnyObject, error) {
				decoded := &corev1.ConfigMap{}
				return decoded, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.(*unstructured.Unstructured).Object, decoded)
			},
		})
		sleepBubble(30 * time.Second)
		if told, _ := o.take(); len(told) != 1 || !strings.Contains(told[0], "default/bad") || o.Health().Objects != 1 || o.Health().Ready() != nil {
			t.Errorf("%d objects, reported %q, %v", o.Health().Objects, told, o.Health().Ready())
		}
		sleepBubble(time.Minute)
		if obj, exists, err := o.Get(keyOf("bad")); err != nil || !exists || obj.(*corev1.ConfigMap).Data["value"] != "7" {
			t.Errorf("when it is mended: %v, %v, %v", obj, exists, err)
		}
	})
}

func TestHealthShowsHowObjectsAreDecoded(t *testing.T) {
	unwrapped := func(w *testkit.Wire) *rest.Config { return &rest.Config{Host: "http://api", Transport: w, QPS: -1} }
	for name, test := range map[string]struct {
		config func(*testkit.Wire) *rest.Config
		opts   anyOptions
		want   informer.DecodingHealth
	}{
		"wrapped":     {(*testkit.Wire).Config, anyOptions{}, informer.DecodingHealth{Objects: 4}},
		"not wrapped": {unwrapped, anyOptions{}, informer.DecodingHealth{Left: 2, LeftBecause: "the configuration of the client has no informer.Transport"}},
		"by client":   {(*testkit.Wire).Config, anyOptions{Decode: informer.DecodeByClient}, informer.DecodingHealth{}},
		"another content": {func(w *testkit.Wire) *rest.Config {
			w.Odd(toLists(testkit.Says(200, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1003"},"items":[]}`, "Content-Type", "application/json", "Content-Encoding", "br")))
			return w.Config()
		}, anyOptions{}, informer.DecodingHealth{Objects: 1, Left: 1, LeftBecause: "Content-Encoding br"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				o := observe(t, informer.ListWatch(kubernetes.NewForConfigOrDie(test.config(w)).CoreV1().ConfigMaps("")), test.opts)
				sleepBubble(time.Minute)
				w.Source.Apply(object("d", "1"))
				sleepBubble(time.Second)
				if got := o.Health().Decoding; got != test.want {
					t.Errorf("%+v, want %+v", got, test.want)
				}
			})
		})
	}
}

func TestATypedInformerLeavesOutUndecodableObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &testkit.Wire{Source: informertest.NewSource(object("a", "1"), object("bad", testkit.Undecodable))}
		var errs errorLog
		inf := must(informer.New(kubernetes.NewForConfigOrDie(w.Config()).CoreV1().ConfigMaps(""), options{ErrorHandler: errs.Handle}))
		start(t, inf)
		sleepBubble(time.Minute)
		var failed *informer.ObjectError
		if all := errs.Take(); len(all) != 1 || !errors.As(all[0], &failed) || failed.Op != "decode" || failed.Key != "default/bad" || inf.Health().Objects != 1 {
			t.Errorf("%d objects, reported %v", inf.Health().Objects, all)
		}
	})
}

// A stream of the first state may bring the delete of an object that cannot be decoded.
func TestAnObjectThatCannotBeDecodedIsDeletedInAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		end := `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1005","annotations":{"k8s.io/initial-events-end":"true"}}}}`
		good := strings.Replace(badObject, `"data":7`, `"data":{"value":"1"}`, 1)
		w.Odd(odd(testkit.IsStream, testkit.Streams(`{"type":"ADDED","object":`+good+`}`, `{"type":"DELETED","object":`+badObject+`}`, end)))
		o := observe(t, typedClient(w), anyOptions{WatchList: informer.WatchListOn, Intake: informer.IntakeEarly})
		sleepBubble(time.Minute)
		if told, _ := o.take(); len(told) != 0 || o.Health().Objects != 0 || o.Health().Ready() != nil {
			t.Errorf("reported %q; %d objects; %v", told, o.Health().Objects, o.Health().Ready())
		}
	})
}
