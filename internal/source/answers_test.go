package source_test

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/source"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// Tests with client-go's real clients, and answers that are not the list that was asked for.

func newWire() *testkit.Wire {
	return &testkit.Wire{Source: informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"))}
}

func typedClient(w *testkit.Wire) cache.ListerWatcher {
	return informer.ListWatch(kubernetes.NewForConfigOrDie(w.Config()).CoreV1().ConfigMaps(""))
}

func dynamicClient(w *testkit.Wire) cache.ListerWatcher {
	return informer.ListWatch(dynamic.NewForConfigOrDie(w.Config()).Resource(testkit.ConfigMaps))
}

// odd returns a function for Wire.Odd that gives an answer to requests of a kind.
func odd(is func(*http.Request) bool, answer testkit.Answer) func(*http.Request) testkit.Answer {
	return func(req *http.Request) testkit.Answer {
		if is(req) {
			return answer
		}
		return nil
	}
}

func isList(req *http.Request) bool      { return !testkit.IsWatch(req) && !testkit.IsProbe(req) }
func isLaterPage(req *http.Request) bool { return req.URL.Query().Has("continue") }

func toLists(answer testkit.Answer) func(*http.Request) testkit.Answer { return odd(isList, answer) }

type anyOptions = informer.Options[informer.AnyObject]

// observed is an informer over a Wire, with what it has reported and which deletes it has delivered.
type observed struct {
	*informer.CustomCacheInformer[informer.AnyObject]

	mu            sync.Mutex
	told, deleted []string
}

// observe runs an informer until the end of the test. It lists, unless opts has another WatchList.
func observe(t *testing.T, lw cache.ListerWatcher, opts anyOptions) *observed {
	t.Helper()
	o := &observed{}
	opts.Name, opts.WatchList = "maps", cmp.Or(opts.WatchList, informer.WatchListOff)
	opts.ErrorHandler = func(_ context.Context, err error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.told = append(o.told, err.Error())
	}
	o.CustomCacheInformer = must(informer.NewFrom(lw, opts))
	must(o.AddWatcher(informer.WatcherFunc[informer.AnyObject](func(_ context.Context, e informer.Event[informer.AnyObject]) error {
		if e.Type == informer.EventDeleted {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.deleted = append(o.deleted, e.Old.GetName())
		}
		return nil
	}), informer.WatcherOptions{}))
	runUntilTheEnd(t, func(ctx context.Context) { _ = o.Run(ctx) })
	return o
}

func runUntilTheEnd(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// take returns what was reported and deleted since the last call.
func (o *observed) take() (told, deleted []string) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	told, deleted, o.told, o.deleted = o.told, o.deleted, nil, nil
	return told, deleted
}

// checkKeeps fails the test if an informer believes answers.
func checkKeeps(t *testing.T, w *testkit.Wire, lw cache.ListerWatcher, answers func(*http.Request) testkit.Answer, opts anyOptions) {
	t.Helper()
	o := observe(t, lw, opts)
	sleepBubble(10 * time.Second)
	w.Source.Expire()
	w.Odd(answers)
	sleepBubble(time.Minute)
	told, deleted := o.take()
	if h := o.Health(); len(deleted) > 0 || h.Objects != 3 || h.SourceError == nil || len(told) == 0 {
		t.Errorf("deleted %v, %d objects are left, Health has the error %v, reported %q", deleted, h.Objects, h.SourceError, told)
	}
	w.Odd(nil)
	_, _ = w.Source.Delete(keyOf("c"))
	sleepBubble(2 * time.Minute)
	_, deleted = o.take()
	if h := o.Health(); h.Objects != 2 || h.SourceError != nil || !slices.Equal(deleted, []string{"c"}) {
		t.Errorf("afterwards there are %d objects, deleted %v, %v", h.Objects, deleted, h.SourceError)
	}
}

const oneObject = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"default","name":"a","uid":"1","resourceVersion":"2000"}}`

// notTheList are answers with 200 that are not the list of a resource with the kind ConfigMap. Typed clients show all
// of them as an empty list.
var notTheList = map[string]string{
	"null": `null`, "an empty object": `{}`, "a message": `{"message":"please log in"}`, "one object": oneObject,
	"a Status":                      `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`,
	"an APIGroup":                   `{"kind":"APIGroup","apiVersion":"v1","name":"x","versions":[]}`,
	"an empty list of another kind": `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"2000"},"items":[]}`,
	"a list of another kind":        `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"2000"},"items":[{"metadata":{"namespace":"default","name":"s"}}]}`,
	"a list of another kind, last":  `{"apiVersion":"v1","items":[{"metadata":{"namespace":"default","name":"s"}}],"kind":"SecretList","metadata":{"resourceVersion":"2000"}}`,
	"a list without a version":      `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}`,
	"a list with version 0":         `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"0"},"items":[]}`,
	"a list with an odd version":    `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"today"},"items":[]}`,
}

func TestAWrongAnswerToAListDeletesNothing(t *testing.T) {
	durable := func() anyOptions { return anyOptions{Durable: informertest.NewDurable()} }
	for name, body := range notTheList {
		answer := testkit.Says(200, body)
		for way, tc := range map[string]struct {
			client func(*testkit.Wire) cache.ListerWatcher
			opts   func() anyOptions
			odd    func(*http.Request) testkit.Answer
		}{
			"DeltaFIFO":      {typedClient, func() anyOptions { return anyOptions{} }, toLists(answer)},
			"RealFIFO":       {typedClient, func() anyOptions { return anyOptions{Queue: informer.QueueRealFIFO} }, toLists(answer)},
			"by client-go":   {typedClient, func() anyOptions { return anyOptions{Decode: informer.DecodeByClient} }, toLists(answer)},
			"early":          {typedClient, func() anyOptions { return anyOptions{Intake: informer.IntakeEarly} }, toLists(answer)},
			"durable":        {typedClient, durable, toLists(answer)},
			"dynamic client": {dynamicClient, durable, toLists(answer)},
			"page":           {typedClient, func() anyOptions { return anyOptions{PageSize: 2} }, odd(isLaterPage, answer)},
			"early page":     {typedClient, func() anyOptions { return anyOptions{PageSize: 2, Intake: informer.IntakeEarly} }, odd(isLaterPage, answer)},
		} {
			t.Run(name+"/"+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWire()
					checkKeeps(t, w, tc.client(w), tc.odd, tc.opts())
				})
			})
		}
		t.Run(name+"/drop-in", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				w.Source.SetFaults(informertest.Faults{RejectWatchList: true})
				s := informer.ClientGo{}.NewSharedIndexInformer(typedClient(w), &corev1.ConfigMap{}, 0, nil)
				runUntilTheEnd(t, s.RunWithContext)
				sleepBubble(10 * time.Second)
				w.Source.Expire()
				w.Odd(toLists(answer))
				sleepBubble(time.Minute)
				if keys := s.GetStore().ListKeys(); len(keys) != 3 {
					t.Errorf("left: %v", keys)
				}
			})
		})
	}
}

// A source that takes the place of another may deliver another kind. From its first list on, the kind is known again.
func TestAListOfAnotherKindDeletesNothingAfterAMove(t *testing.T) {
	for name, intake := range map[string]informer.IntakeMode{"early": informer.IntakeEarly, "whole": informer.IntakeWhole} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				from := informer.ClusterSource{Source: dynamicClient(w), UID: "1"}
				c := must(informer.NewOverClusters(anyOptions{WatchList: informer.WatchListOff, Intake: intake, ErrorHandler: ignore}, informer.ClusterOptions{}))
				runUntilTheEnd(t, func(ctx context.Context) { _ = c.Run(ctx) })
				testkit.NoError(t, c.Engage("east", from))
				sleepBubble(10 * time.Second)
				testkit.NoError(t, c.Move("east", from))
				sleepBubble(10 * time.Second)
				w.Source.Expire()
				w.Odd(toLists(testkit.Says(200, notTheList["an empty list of another kind"])))
				sleepBubble(time.Minute)
				if h := c.Health(); h.Objects != 3 || h.SourceError == nil {
					t.Errorf("%d objects are left, Health has the error %v", h.Objects, h.SourceError)
				}
			})
		})
	}
}

// An answer of another kind is believed at last, because the first one may have been the wrong one. A version that was
// there does not go away.
func TestAListWithoutAVersionIsNeverBelievedAfterOneWithAVersion(t *testing.T) {
	for _, name := range []string{"a list without a version", "a list with version 0", "a list with an odd version"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			o := observe(t, typedClient(w), anyOptions{})
			sleepBubble(10 * time.Second)
			w.Source.Expire()
			w.Odd(toLists(testkit.Says(200, notTheList[name])))
			sleepBubble(time.Hour)
			if _, deleted := o.take(); len(deleted) > 0 || o.Health().Objects != 3 {
				t.Errorf("%s: deleted %v", name, deleted)
			}
		})
	}
}

func TestTheReportOfAnOddAnswerNamesTheAnswer(t *testing.T) {
	for name, want := range map[string]string{
		"a list without a version": `resourceVersion "", which does not compare with "100`, "a list with an odd version": `"today"`,
		"a Status": "kind Status", "one object": "kind ConfigMap", "an APIGroup": "kind APIGroup",
		"an empty list of another kind": "kind SecretList, and the objects before it were of kind ConfigMap",
		"a list of another kind":        "kind SecretList, and the objects before it were of kind ConfigMap",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				o := observe(t, dynamicClient(w), anyOptions{})
				sleepBubble(10 * time.Second)
				w.Source.Expire()
				w.Odd(toLists(testkit.Says(200, notTheList[name])))
				sleepBubble(10 * time.Second)
				if told, _ := o.take(); len(told) != 1 || !strings.Contains(told[0], want) {
					t.Errorf("reported %q, want %q", told, want)
				}
			})
		})
	}
}

// Some servers have no versions. So at a start without anything known, such a list is taken in, but not in silence.
func TestAFirstListWithoutAVersionIsTakenInAndShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.Odd(toLists(testkit.Says(200, `{}`)))
		o := observe(t, typedClient(w), anyOptions{})
		told, _ := o.take()
		h := o.Health()
		if len(told) != 1 || h.Ready() != nil || h.SourceFailures != 0 || h.SourceError == nil || !strings.Contains(h.SourceError.Error(), "no resourceVersion") {
			t.Errorf("reported %q, ready: %v, Health has the error %v", told, h.Ready(), h.SourceError)
		}
		w.Odd(nil)
		w.Source.Expire()
		sleepBubble(time.Minute)
		if h := o.Health(); h.Objects != 3 || h.SourceError != nil {
			t.Errorf("after a list with a version there are %d objects, %v", h.Objects, h.SourceError)
		}
	})
}

func TestVersionsThatCannotBeComparedCannotBeWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.Odd(toLists(testkit.Says(200, notTheList["a list with an odd version"])))
		o := observe(t, typedClient(w), anyOptions{})
		<-o.Synced()
		for version, says := range map[string]string{"7": "the source's versions cannot be compared", "": "empty"} {
			if err := o.WaitForVersion(t.Context(), "", version); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("WaitForVersion %q: %v", version, err)
			}
		}
	})
}

// The objects of a stream have a kind, too.
func TestAStreamOfAnotherKindIsReplacedByAList(t *testing.T) {
	for _, intake := range []informer.IntakeMode{informer.IntakeWhole, informer.IntakeEarly} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			o := observe(t, dynamicClient(w), anyOptions{Intake: intake, WatchList: informer.WatchListOn})
			sleepBubble(10 * time.Second)
			secrets := testkit.Streams(`{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"namespace":"default","name":"s","uid":"s","resourceVersion":"1"}}}`,
				`{"type":"BOOKMARK","object":{"kind":"Secret","apiVersion":"v1","metadata":{"resourceVersion":"2000","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
			w.Odd(odd(testkit.IsStream, secrets))
			w.Source.Expire()
			sleepBubble(time.Minute)
			if _, deleted := o.take(); len(deleted) > 0 || o.Health().Objects != 3 {
				t.Errorf("deleted %v, %d objects are left", deleted, o.Health().Objects)
			}
		})
	}
}

// These lists are odd, and right. They must be believed, at the latest when the source insists.
func TestAnOddButRightListIsBelieved(t *testing.T) {
	empty := func(kind, version string) string {
		return `{"kind":"` + kind + `","apiVersion":"v1","metadata":{"resourceVersion":"` + version + `"},"items":[]}`
	}
	none := toLists(testkit.Says(200, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}`))
	for name, tc := range map[string]struct {
		client func(*testkit.Wire) cache.ListerWatcher
		first  func(*http.Request) testkit.Answer // nil for the list of the source
		then   func(*http.Request) testkit.Answer
		want   int // objects
	}{
		"a kind that does not end in List": {dynamicClient, toLists(testkit.Says(200, empty("ConfigMaps", "1003"))), nil, 3},
		"another kind from now on":         {dynamicClient, nil, toLists(testkit.Says(200, empty("SettingsList", "1003"))), 0},
		"a wrong one was the first":        {dynamicClient, toLists(testkit.Says(200, notTheList["a list of another kind"])), nil, 3},
		"without versions":                 {typedClient, none, none, 0},
		"everything was deleted":           {typedClient, nil, nil, 0},
		"everything was deleted, dynamic":  {dynamicClient, nil, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				w.Odd(tc.first)
				o := observe(t, tc.client(w), anyOptions{})
				if synctest.Wait(); !o.HasSynced() {
					t.Fatalf("it has not synced: %v", o.Health().Ready())
				}
				sleepBubble(time.Minute)
				w.Odd(tc.then)
				w.Source.Expire()
				for _, name := range []string{"a", "b", "c"}[tc.want:] { // between two watches
					_, _ = w.Source.Delete(keyOf(name))
				}
				sleepBubble(30 * time.Minute)
				if h := o.Health(); h.Objects != tc.want || h.SourceFailures != 0 {
					t.Errorf("%d objects, want %d; %v", h.Objects, tc.want, h.SourceError)
				}
			})
		})
	}
}

// turns is a divided source that delivers the same part each time.
type turns struct {
	cache.ListerWatcher
	lw      cache.ListerWatcher
	changed chan struct{} // of the present part
}

func (d *turns) Part() source.Part {
	d.changed = make(chan struct{})
	return source.Part{Lister: d.lw, Changed: d.changed}
}

// A turn to another part forgets nothing that is known of the lists.
func TestAWrongAnswerToAListOfAPartDeletesNothing(t *testing.T) {
	for name, client := range map[string]func(*testkit.Wire) cache.ListerWatcher{"typed": typedClient, "dynamic": dynamicClient} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				d := &turns{lw: client(w)}
				inf := must(informer.NewFrom(d, anyOptions{WatchList: informer.WatchListOff, ErrorHandler: ignore}))
				informertest.Run(t, inf)
				w.Odd(toLists(testkit.Says(200, notTheList["an empty list of another kind"])))
				close(d.changed)
				sleepBubble(time.Minute)
				if h := inf.Health(); h.Objects != 3 || h.SourceError == nil {
					t.Errorf("%d objects, %v", h.Objects, h.SourceError)
				}
			})
		})
	}
}

// A watch that opens slowly is checked. It stays if the check is refused.
func TestASlowWatchIsKeptAlthoughProbesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.Odd(func(req *http.Request) testkit.Answer {
			if testkit.IsProbe(req) {
				return testkit.Refuses(403, "Forbidden")
			}
			if testkit.IsWatch(req) {
				sleepUntil(req.Context(), 2*time.Second)
			}
			return nil
		})
		o := observe(t, typedClient(w), anyOptions{})
		sleepBubble(time.Hour)
		if got := asked(w.Source, 0); strings.Count(got, "list") != 1 || strings.Count(got, "watch") < 5 || o.Health().SourceError != nil {
			t.Errorf("the source was asked for: %s; %v", got, o.Health().SourceError)
		}
	})
}
