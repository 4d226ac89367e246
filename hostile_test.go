package informer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/debug"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// These tests send objects that an API server does not send, or rarely sends. Whatever they
// send, the other objects must not suffer.

// odd returns objects that an informer accepts unchanged.
func odd() map[string]configMap {
	const maxObject = 1536 << 10 // etcd's default limit
	labels := map[string]string{}
	for i := range 10_000 {
		labels["label-"+strconv.Itoa(i)] = strconv.Itoa(i)
	}
	named := func(namespace, name string) configMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid of " + name), ResourceVersion: "7"}}
	}
	with := func(name string, change func(configMap)) configMap {
		obj := named("default", name)
		change(obj)
		return obj
	}
	return map[string]configMap{
		"huge":                   with("huge", func(o configMap) { o.Data = map[string]string{"x": strings.Repeat("x", maxObject)} }),
		"many labels":            with("labels", func(o configMap) { o.Labels = labels }),
		"a slash":                named("default", "a/b"),
		"slashes":                named("a/b", "/c/"),
		"a path":                 named("..", "../../etc/passwd"),
		"NUL":                    named("a\x00b", "c\x00"),
		"the informer's own key": named("", "\x00bookmark"),
		"another of them":        named("", "\x00list/1/end"),
		"bidi":                   named("default", "\u202egnp.\u2067exe"),
		"no UTF-8":               named("default", "\xff\xfe"),
		"markup":                 named("<b>", `"><script>alert(1)</script>`),
		"control":                named("default", "\x1b[2J\r\n\u2028"),
		"a long name":            named("default", strings.Repeat("long", 64<<10)),
		"no namespace":           named("", "clusterwide"),
		"no UID":                 with("no-uid", func(o configMap) { o.UID = "" }),
		"no version":             with("no-version", func(o configMap) { o.ResourceVersion = "" }),
		"a version of letters":   with("letters", func(o configMap) { o.ResourceVersion = "never" }),
		"a negative version":     with("negative", func(o configMap) { o.ResourceVersion = "-5" }),
		"a huge version":         with("huge-version", func(o configMap) { o.ResourceVersion = strings.Repeat("9", 400) }),
		"a negative generation":  with("generation", func(o configMap) { o.Generation = -1 << 63 }),
		"a time before all":      with("time", func(o configMap) { o.CreationTimestamp = metav1.Time{Time: time.Unix(-1<<40, 0)} }),
	}
}

// world is an informer with watchers that runs, and whose source sends odd objects.
type world struct {
	*ci
	t        *testing.T
	group    informer.Group
	src      *source
	errs     errorLog
	watchers []*recorder
}

// newWorld returns a world whose lists have items, too.
func newWorld(t *testing.T, opts options, items ...runtime.Object) *world {
	t.Helper()
	w := &world{t: t, src: informertest.NewSource(object("a", "1"), object("b", "1"))}
	opts.ErrorHandler, opts.WatchList = w.errs.Handle, informer.WatchListOff // objects are injected into lists
	w.ci = newInformer(t, w.src, opts)
	noError(w.t, w.group.Add(w.ci))
	for _, opts := range []informer.WatcherOptions{{}, {MaxBacklog: -1}, {Workers: 3}} {
		w.join(opts)
	}
	w.src.SetFaults(informertest.Faults{ListItems: items})
	startGroup(t, &w.group)
	return w
}

func (w *world) join(opts informer.WatcherOptions) {
	w.t.Helper()
	r := &recorder{}
	w.watchers = append(w.watchers, r)
	addWatcher(w.t, w.ci, r, opts)
}

// agree fails the test unless the store has exactly the objects of the source and those of
// among, and all watchers know them.
func (w *world) agree(what string, among ...configMap) {
	w.t.Helper()
	w.join(informer.WatcherOptions{})
	sleepBubble(5 * time.Minute)
	stored := maps.Collect(w.All())
	for key, obj := range stored {
		if got, exists, err := w.Get(key); err != nil || !exists || got != obj || key != cache.MetaObjectToName(obj).AsNamespacedName() {
			w.t.Errorf("%s: Get %q: exists %v, %v", what, key, exists, err)
		}
	}
	agrees := func(who string, objs ...configMap) {
		w.t.Helper()
		if diff := cmp.Diff(testkit.Versions(objs...), testkit.Versions(slices.Collect(maps.Values(stored))...)); diff != "" {
			w.t.Errorf("%s: %s and the store (-%[2]s +store): %.2000s", what, who, diff)
		}
	}
	agrees("source", append(w.src.Objects(), among...)...)
	for i, r := range w.watchers {
		agrees(fmt.Sprint("watcher ", i), slices.Collect(maps.Values(r.View()))...)
		if err := r.Err(); err != nil {
			w.t.Errorf("%s: watcher %d: %.500v", what, i, err)
		}
	}
	h := w.Health()
	if h.Objects != len(stored) || h.Queued != 0 || !h.Synced || !h.Watching {
		w.t.Errorf("%s: %d objects of %d, %d queued, synced %v, watching %v", what, h.Objects, len(stored), h.Queued, h.Synced, h.Watching)
	}
}

// looksWell fails the test unless the page and the JSON of a debug handler are valid.
func (w *world) looksWell(what string) {
	w.t.Helper()
	for _, format := range []string{"html", "json"} {
		answer := httptest.NewRecorder()
		debug.Handler(w.group.Health).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/?format="+format, nil))
		if body := answer.Body.String(); answer.Code != 200 || strings.Contains(body, "<script>alert") || format == "json" && !json.Valid([]byte(body)) {
			w.t.Errorf("%s: %s: %d %.500s", what, format, answer.Code, body)
		}
	}
}

func TestHostileObjectsComeAsTheyAreAndHarmNoOther(t *testing.T) {
	t.Parallel()
	for name, obj := range odd() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				w := newWorld(t, options{Queue: queue}, obj)
				w.agree("a list", obj)
				w.looksWell("a list")

				w.src.Apply(object("a", "2"))
				changed := obj.DeepCopy()
				changed.Data = map[string]string{"changed": "yes"}
				// The next watch begins at the version of the last live event, see
				// TestAVersionThatNobodyKnowsIsListedAnew.
				changed.ResourceVersion = w.src.ResourceVersion()
				w.src.Inject(watch.Event{Type: watch.Modified, Object: changed})
				w.src.Apply(object("c", "1"))
				w.agree("an update", changed)

				w.src.Inject(watch.Event{Type: watch.Deleted, Object: changed})
				w.src.Apply(object("b", "2"))
				w.agree("a delete")

				w.src.Inject(watch.Event{Type: watch.Added, Object: changed})
				w.agree("an add", changed)
				w.src.Expire()
				w.agree("a relist", obj)
				w.src.Heal()
				w.src.Expire()
				w.agree("a relist without it")
			})
		})
	}
}

func TestAllHostileObjectsAtOnce(t *testing.T) {
	t.Parallel()
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		all := slices.Collect(maps.Values(odd()))
		var items []runtime.Object
		for _, obj := range all {
			items = append(items, obj)
		}
		w := newWorld(t, options{Queue: queue}, items...)
		w.agree("a list", all...)
		for i := range 5 {
			w.src.Apply(object("a", strconv.Itoa(i)))
			w.src.Expire()
			w.agree("a relist", all...)
		}
		equal(t, "reported", fmt.Sprintf("%.500v", w.errs.Take()), "[]")
	})
}

func TestHostileObjectsOfOneKeyAreOne(t *testing.T) {
	t.Parallel()
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		first, last := object("twice", "1"), object("twice", "2")
		first.UID, last.UID = "first", "last"
		first.ResourceVersion, last.ResourceVersion = "5", "6"
		w := newWorld(t, options{Queue: queue}, first, last)
		w.agree("the same key twice in a list", last)
		for range 3 {
			w.src.Expire()
			w.agree("the same again", last)
		}
	})
}

func TestHostileNonObjectsAreReportedAndHarmNoOther(t *testing.T) {
	t.Parallel()
	for name, obj := range map[string]runtime.Object{
		"nil": nil, "a typed nil": (*corev1.ConfigMap)(nil), "a nil of another type": (*corev1.Pod)(nil),
		"no name": object("", "1"), "only a namespace": &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}},
		"a status": &metav1.Status{Message: "odd"}, "a list": &corev1.ConfigMapList{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, "", "EXPLODED"} {
				eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
					var items []runtime.Object
					if obj != nil { // a list cannot contain nil
						items = append(items, obj)
					}
					w := newWorld(t, options{Queue: queue}, items...)
					w.agree("a list")
					w.reported("a list", obj != nil)
					w.src.Inject(watch.Event{Type: kind, Object: obj})
					w.src.Apply(object("a", fmt.Sprint("after ", kind)))
					w.agree(fmt.Sprint("event ", kind))
					w.reported(string(kind), kind != watch.Bookmark || obj == nil || name == "a status")
					w.src.Expire()
					w.agree("a relist")
				})
			}
		})
	}
}

// reported fails the test if want is set and no error was reported since the last call, or if
// a reported error is not an ObjectError.
func (w *world) reported(what string, want bool) {
	w.t.Helper()
	errs := w.errs.Take()
	if want && len(errs) == 0 {
		w.t.Errorf("%s: nothing was reported", what)
	}
	for _, err := range errs {
		if e := (*informer.ObjectError)(nil); !errors.As(err, &e) {
			w.t.Errorf("%s: reported %v, want an ObjectError", what, err)
		}
	}
}

func TestHostileObjectsOfAnotherTypeAreReportedAndHarmNoOther(t *testing.T) {
	t.Parallel()
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "pod", ResourceVersion: "7"}}
		w := newWorld(t, options{Queue: queue}, pod)
		sleepBubble(time.Minute)
		if h := w.Health(); h.Synced || h.SourceError == nil || h.Objects != 0 {
			t.Errorf("with a Pod in the list: synced %v, %d objects, error %v", h.Synced, h.Objects, h.SourceError)
		}
		w.src.Heal()
		w.agree("without it")
		w.errs.Take()
		for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
			w.src.Inject(watch.Event{Type: kind, Object: pod})
			w.src.Apply(object("b", string(kind)))
			w.agree(string(kind))
		}
		w.src.SetFaults(informertest.Faults{ListItems: []runtime.Object{pod}})
		w.src.Expire()
		sleepBubble(time.Minute)
		if h := w.Health(); h.SourceError == nil || h.Objects != len(w.src.Objects()) {
			t.Errorf("a relist with a Pod: %d objects, error %v", h.Objects, h.SourceError)
		}
		w.src.Heal()
		w.src.Apply(object("c", "1"))
		w.agree("a relist without it")
	})
}

// TestAHostileVersionIsReportedAndLosesNothing sends events with versions that the server
// itself may reject later. A reflector continues at the version of the last event, and would
// do so forever. If the server rejects that version, the informer must list.
func TestAHostileVersionIsReportedAndLosesNothing(t *testing.T) {
	t.Parallel()
	for version, taken := range map[string]bool{"": true, "0": true, "never": false, "-5": false, strings.Repeat("9", 400): false} {
		t.Run(fmt.Sprintf("%.10q", version), func(t *testing.T) {
			t.Parallel()
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				w := newWorld(t, options{Queue: queue})
				w.agree("a list")
				obj := object("odd", "1")
				obj.UID, obj.ResourceVersion = "odd", version
				w.src.Inject(watch.Event{Type: watch.Added, Object: obj})
				w.src.Apply(object("a", "2")) // before the watch ends
				w.agree("an event, and the next", obj)
				w.src.Inject(watch.Event{Type: watch.Modified, Object: obj})
				synctest.Wait()
				n := len(w.src.Requests())
				w.src.Disconnect()
				w.src.Apply(object("a", "3"))
				if taken { // the next watch begins somewhere, and does not show that obj is missing
					w.agree("after a cut", obj)
				} else {
					w.agree("after a cut")
				}
				noError(t, w.Health().SourceError)
				if errs := w.errs.Take(); (len(errs) == 0) != taken || len(errs) > 3 {
					t.Errorf("reported: %.500v", errs)
				}
				if asked := asked(w.src, n); strings.Count(asked, ",") > 4 {
					t.Errorf("the source was asked for: %s", asked)
				}
			})
		})
	}
}

func TestNoInformerContinuesAtAHostileBookmark(t *testing.T) {
	t.Parallel()
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		w := newWorld(t, options{Queue: queue})
		w.agree("a list")
		w.src.Inject(watch.Event{Type: watch.Bookmark, Object: &corev1.ConfigMap{}})
		synctest.Wait()
		w.reported("the bookmark", true)
		w.src.Disconnect()
		_, _ = w.src.Delete(keyOf("a"))
		w.agree("a delete while there was no watch")
	})
}

// nested returns an object with that depth.
func nested(depth int) *unstructured.Unstructured {
	var in any = "the end"
	for i := range depth {
		if i%2 == 0 {
			in = map[string]any{"x": in}
		} else {
			in = []any{in}
		}
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": in}}
	obj.SetAPIVersion("example.com/v1")
	obj.SetKind("Deep")
	obj.SetNamespace("default")
	obj.SetName("deep")
	return obj
}

// TestHostileDepth stays below a depth of 10,000, because JSON and CBOR are not decoded beyond
// that.
func TestHostileDepth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deep := nested(9_900)
		inf, src := informertest.Start(t, deep)
		var r informertest.Recorder[*unstructured.Unstructured]
		reg := must(inf.AddWatcher(&r, informer.WatcherOptions{ResyncPeriod: time.Minute}))
		<-reg.Synced()
		for i := range 3 {
			changed := deep.DeepCopy()
			changed.SetLabels(map[string]string{"i": strconv.Itoa(i)})
			src.Apply(changed)
			src.Expire()
			sleepBubble(2 * time.Minute)
		}
		// Objects with equal versions are compared by content, down to the last level.
		noError(t, src.Restore(src.ResourceVersion()))
		sleepBubble(2 * time.Minute)
		got, exists, err := inf.Get(types.NamespacedName{Namespace: "default", Name: "deep"})
		if err != nil || !exists || got.GetLabels()["i"] != "2" {
			t.Errorf("exists %v, labels %v, %v", exists, got.GetLabels(), err)
		}
		text := must(got.MarshalJSON())
		noError(t, new(unstructured.Unstructured).UnmarshalJSON(text))
		noError(t, r.Err())
	})
}

func TestAHostileStoreIsAnErrorAndNoPanic(t *testing.T) {
	t.Parallel()
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		store := newPlainStore()
		w := newWorld(t, options{Queue: queue, Store: store})
		w.agree("a list")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
		for _, other := range []any{pod, "text", nil, 7} {
			lying := &lyingStore{Store: store, says: other}
			inf := newInformer(t, w.src, options{Queue: queue, Store: lying, ErrorHandler: w.errs.Handle})
			if obj, exists, err := inf.Get(keyOf("a")); err == nil || exists {
				t.Errorf("Get returns %v, %v, %v of a %T", obj, exists, err, other)
			}
			if objs, err := inf.List("", nil); err == nil {
				t.Errorf("List returns %v of a %T", objs, other)
			}
			addWatcher(t, inf, &recorder{}, informer.WatcherOptions{})
			stop := start(t, inf)
			sleepBubble(time.Minute)
			if h := inf.Health(); h.StoreError == nil && len(w.errs.Take()) == 0 {
				t.Errorf("no error is reported for a %T", other)
			}
			stop()
		}
	})
}

// lyingStore returns says for every object, whatever it holds.
type lyingStore struct {
	cache.Store
	says any
}

func (s *lyingStore) GetByKey(string) (any, bool, error) { return s.says, true, nil }
func (s *lyingStore) List() []any                        { return []any{s.says} }
