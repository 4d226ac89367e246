package restart_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// inTheStream are answers that refuse a watch after it was taken.
var inTheStream = map[string]testkit.Answer{
	"500 in the stream":              testkit.Streams(`{"type":"ERROR","object":` + testkit.StatusText(500, "InternalError") + `}`),
	"429 in the stream":              testkit.Streams(`{"type":"ERROR","object":` + testkit.StatusText(429, "TooManyRequests") + `}`),
	"410 without a kind":             testkit.Streams(`{"type":"ERROR","object":{"status":"Failure","reason":"Expired","code":410,"message":"too old"}}`),
	"an error that is not a Status":  testkit.Streams(`{"type":"ERROR","object":{"kind":"ConfigMap","apiVersion":"v1"}}`),
	"an event that is not an object": testkit.Streams(`{"type":"ADDED","object":7}`),
	"an object of another shape":     testkit.Streams(`{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","data":7}}`),
}

func typed(w *testkit.Wire) informer.Client[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return kubernetes.NewForConfigOrDie(w.Config()).CoreV1().ConfigMaps("")
}

// startAgain runs an informer over a store with the state of an earlier run, and returns it with its watcher. In between
// an object was deleted. Then odd answers requests that name the version of the store.
func startAgain(t *testing.T, w *testkit.Wire, opts options, odd func(req *http.Request, version string) testkit.Answer) (*ci, *recorder) {
	t.Helper()
	store := informertest.NewDurable()
	oneRun(t, w.Source, store, options{WatchList: opts.WatchList})
	version := w.Source.ResourceVersion()
	_, _ = w.Source.Delete(keyOf("b"))
	w.Odd(func(req *http.Request) testkit.Answer { return odd(req, version) })
	opts.Durable, opts.ErrorHandler = store.Reopen(), ignore
	inf, err := informer.New(typed(w), opts)
	must(t, err)
	r := joined(t, inf)
	start(t, inf)
	return inf, r
}

func named(req *http.Request, version string) bool {
	return req.URL.Query().Get("resourceVersion") == version
}

// A start with a version must end in the state of the server wherever a start without one does.
func TestAStartIsNotWorseWithAVersion(t *testing.T) {
	watches := func(req *http.Request, version string) bool { return testkit.IsWatch(req) && named(req, version) }
	for where, tc := range map[string]struct {
		asks    func(req *http.Request, version string) bool
		answers map[string]testkit.Answer
	}{
		"watches from the version": {watches, testkit.Refusals},
		"in the stream":            {watches, inTheStream},
		"requests that name it":    {named, testkit.Refusals},
		"watches": { // the resource can only be listed
			func(req *http.Request, _ string) bool { return testkit.IsWatch(req) },
			map[string]testkit.Answer{"405": testkit.Refusals["405"]},
		},
		"the connection": {watches, map[string]testkit.Answer{
			"EOF": testkit.Breaks(io.EOF), "malformed": testkit.Breaks(errors.New("net/http: malformed HTTP response")),
		}},
		"probes and watches": {func(req *http.Request, version string) bool {
			return testkit.IsProbe(req) || watches(req, version)
		}, testkit.Refusals},
	} {
		for name, answer := range tc.answers {
			t.Run(where+"/"+name, func(t *testing.T) {
				bothWays(t, func(t *testing.T, opts options, _ string) {
					w := &testkit.Wire{Source: informertest.NewSource(objects("a", "b")...)}
					inf, r := startAgain(t, w, opts, func(req *http.Request, version string) testkit.Answer {
						if tc.asks(req, version) {
							return answer
						}
						return nil
					})
					must(t, inf.WaitForSync(within(t, 5*time.Minute)))
					_, _ = w.Source.Create(object("c", "1"))
					sleepBubble(2 * time.Minute)
					checkView(t, r, w.Source)
					if got := told(r); !slices.ContainsFunc(got, func(e string) bool { return strings.HasSuffix(e, "deleted b") }) {
						t.Errorf("the watcher got %q", got)
					}
				})
			})
		}
	}
}

// An outage does not cost the version.
func TestAStartWithAVersionDuringAnOutageListsNothingAfterwards(t *testing.T) {
	for name, answer := range map[string]testkit.Answer{
		"502":        testkit.Says(502, `<html>bad gateway</html>`, "Content-Type", "text/html"),
		"503":        testkit.Refuses(503, "ServiceUnavailable"),
		"500":        testkit.Refuses(500, "InternalError"),
		"HTML":       testkit.Says(200, `<html>log in</html>`, "Content-Type", "text/html"),
		"no address": testkit.Breaks(testkit.Dialing(errDown)),
	} {
		inBubble(t, name, func(t *testing.T) {
			w := &testkit.Wire{Source: informertest.NewSource(objects("a", "b")...)}
			inf, r := startAgain(t, w, options{}, func(*http.Request, string) testkit.Answer { return answer })
			sleepBubble(time.Hour)
			n := len(w.Source.Requests())
			w.Odd(nil)
			sleepBubble(2 * time.Minute)
			if got := asked(w.Source, n); !inf.HasSynced() || !strings.HasPrefix(got, "probe, watch from ") || strings.Contains(got, "list") || strings.Contains(got, "stream") {
				t.Errorf("synced: %v, the source was asked for: %s", inf.HasSynced(), got)
			}
			checkView(t, r, w.Source)
		})
	}
}
