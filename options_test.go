package informer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/share"
)

func TestNewNamesInvalidOptions(t *testing.T) {
	src := informertest.NewSource[configMap]()
	list := func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, nil }
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"taken": cache.MetaNamespaceIndexFunc})
	byNothing := func(configMap) ([]string, error) { return nil, nil }
	var nilStore *plainStore
	var nilSource *source
	for says, tc := range map[string]struct {
		lw   cache.ListerWatcher
		opts options
	}{
		"source (lw) is nil":          {nil, options{}},
		"(lw) is nil":                 {nilSource, options{}},
		"ListFunc or ListWithContext": {&cache.ListWatch{}, options{}},
		"WatchFunc or WatchFuncWith":  {&cache.ListWatch{ListWithContextFunc: list}, options{}},
		"the client is nil":           {informer.ListWatch[*corev1.ConfigMapList](nil), options{}},
		"Options.Store":               {src, options{Store: nilStore}},
		"Options.Durable is a store of *v1.Pod, but the objects of the informer are of type *v1.ConfigMap": {src, options{Durable: typedStore{informertest.NewDurable()}}},
		"Options.Durable is a nil":              {src, options{Durable: (*informertest.Durable)(nil)}},
		"Options.Store and Options.Durable":     {src, options{Store: newPlainStore(), Durable: informertest.NewDurable()}},
		"Options.Queue":                         {src, options{Queue: 3}},
		"Options.Queue is -1":                   {src, options{Queue: -1}},
		"Options.WatchList":                     {src, options{WatchList: 3}},
		`Options.Omit: path "metadata.x": v1.O`: {src, options{Omit: []string{"metadata.x"}}},
		"Options.Intake is -1":                  {src, options{Intake: -1}},
		"Options.Intake is 3":                   {src, options{Intake: 3}},
		"Options.Decode is -1":                  {src, options{Decode: -1}},
		"Options.Decode is 2":                   {src, options{Decode: 2}},
		"Options.DrainTimeout is -1s":           {src, options{DrainTimeout: -time.Second}},
		"Options.Backoff.Duration":              {src, options{Backoff: &wait.Backoff{}}},
		"Options.Backoff.Jitter is -1":          {src, options{Backoff: &wait.Backoff{Duration: 1, Jitter: -1}}},
		`Options.Indexers["x"] is nil`:          {src, options{Indexers: informer.Indexers[configMap]{"x": nil}}},
		`Options.Indexers["namespace"]`:         {src, options{Indexers: informer.Indexers[configMap]{"namespace": byNothing}}},
		`Options.Fields["x"]: path "dat.a": the object (v1.ConfigMap) has no field "dat", only`: {src, options{Fields: map[string]string{"x": "dat.a"}}},
		`Options.Fields["y"]: an index of that name`:                                            {src, options{Fields: map[string]string{"y": "data.a"}, Indexers: informer.Indexers[configMap]{"y": byNothing}}},
		`Options.Fields["namespace"]: an index of that name`:                                    {src, options{Fields: map[string]string{"namespace": "data.a"}}},
		"Options.Fields: indexer con":                                                           {src, options{Store: indexer, Indexers: informer.Indexers[configMap]{"taken": byNothing}}},
	} {
		if _, err := informer.NewFrom(tc.lw, tc.opts); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want it to contain %q", err, says)
		}
	}
	_, err := informer.NewFrom(src, informer.Options[strange]{})
	says(t, err, "(T)")
	must(informer.NewFrom(src, informer.Options[informer.AnyObject]{Durable: typedStore{informertest.NewDurable()}}))
}

type typedStore struct{ *informertest.Durable }

func (typedStore) ObjectType() reflect.Type { return reflect.TypeFor[*corev1.Pod]() }

// strange is an Object that is not a pointer.
type strange struct{ informer.AnyObject }

func TestBackoffDoublesUpToItsLimitAndGivesUp(t *testing.T) {
	retry := informer.Backoff(time.Second, 10*time.Second, 6)
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second} {
		wait, again := retry(failures, nil)
		if !again || wait < want || wait > want+want/10 {
			t.Errorf("after %d failures it waits %v, %v, want %v and up to a tenth", failures, wait, again, want)
		}
	}
	for _, failures := range []int{6, 7} {
		if _, again := retry(failures, nil); again {
			t.Errorf("it does not give up after %d failures", failures)
		}
	}
	for _, failures := range []int{60, 100, math.MaxInt} {
		if wait, again := informer.Backoff(time.Second, time.Minute, 0)(failures, nil); !again || wait < time.Minute || wait > 66*time.Second {
			t.Errorf("without a limit of attempts, after %d failures: %v, %v", failures, wait, again)
		}
	}
	for _, bad := range []func(){
		func() { informer.Backoff(0, time.Second, 1) },
		func() { informer.Backoff(time.Minute, time.Second, 1) },
		func() { informer.Backoff(time.Second, time.Minute, -1) },
	} {
		func() {
			defer func() {
				if v := recover(); !strings.Contains(fmt.Sprint(v), "informer: Backoff(") {
					t.Errorf("what cannot be meant panics with %v", v)
				}
			}()
			bad()
		}()
	}
}

func TestNewDoesNotChangeTheCallersOptions(t *testing.T) {
	backoff := wait.Backoff{Duration: time.Second, Steps: 3}
	opts, before := options{Backoff: &backoff}, backoff
	newInformer(t, informertest.NewSource[configMap](), opts)
	if opts.Name != "" || opts.Store != nil || backoff != before {
		t.Errorf("the options are %+v now", opts)
	}
}

func TestAddWatcherNamesInvalidOptions(t *testing.T) {
	inf := newInformer(t, informertest.NewSource[configMap](), options{})
	var nilRecorder *recorder
	var nilFunc informer.WatcherFunc[configMap]
	yes := func(configMap) bool { return true }
	for says, tc := range map[string]struct {
		w    informer.ResourceWatcher[configMap]
		opts informer.WatcherOptions
	}{
		"watcher is nil":              {nil, informer.WatcherOptions{}},
		"is nil":                      {nilRecorder, informer.WatcherOptions{}},
		"nil":                         {nilFunc, informer.WatcherOptions{}},
		"watcher is":                  {informer.Select[configMap](nil, yes), informer.WatcherOptions{}},
		"function given to Select":    {informer.Select(&recorder{}, nil), informer.WatcherOptions{}},
		"WatcherOptions.ResyncPeriod": {&recorder{}, informer.WatcherOptions{ResyncPeriod: -1}},
		"WatcherOptions.Workers":      {&recorder{}, informer.WatcherOptions{Workers: -1}},
	} {
		if _, err := inf.AddWatcher(tc.w, tc.opts); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "ConfigMap") {
			t.Errorf("got %v, want it to contain %q", err, says)
		}
	}
}

func TestNamesDefaultToTheTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs errorLog
		inf := newInformer(t, informertest.NewSource(object("a", "1")), options{ErrorHandler: errs.Handle})
		fails := recorder{Hook: func(context.Context, event) error { return errors.New("no") }}
		addWatcher(t, inf, &fails, informer.WatcherOptions{})
		informertest.Run(t, inf)
		if got := errs.Take()[0].Error(); !strings.Contains(got, "watcher Recorder-1:") {
			t.Errorf("an unnamed watcher's failure is %q", got)
		}
		if err := inf.Run(t.Context()); !strings.Contains(err.Error(), "informer ConfigMap:") {
			t.Errorf("an unnamed informer's error is %q", err)
		}
	})
}

func TestTransformIsAppliedOnceBeforeTheStore(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf, r := watched(t, src, options{Queue: queue, Transform: func(obj configMap) (configMap, error) {
			obj.Data["value"] += "!"
			return obj, nil
		}})
		src.Apply(object("a", "2"))
		r.Expect(t, "added default/a", "updated default/a")
		e := r.Events()[1]
		equal(t, "values of the update", e.Old.Data["value"]+" "+e.New.Data["value"], "1! 2!")
		equal(t, "stored", valueOf(inf.Get(keyOf("a"))), "2!")
	})
}

func TestAFailingTransformLosesNoObject(t *testing.T) {
	for name, fail := range map[string]func(configMap) (configMap, error){
		"an error": func(configMap) (configMap, error) { return nil, errors.New("cannot transform") },
		"nil":      func(configMap) (configMap, error) { return nil, nil },
		"a key":    func(obj configMap) (configMap, error) { obj.Name += "x"; return obj, nil },
	} {
		eachQueueOf(t, name, func(t *testing.T, queue informer.QueueKind) {
			src := informertest.NewSource(object("good", "1"), object("new", "bad"), object("turns", "1"))
			var errs errorLog
			inf, r := watched(t, src, options{Queue: queue, ErrorHandler: errs.Handle, Transform: func(obj configMap) (configMap, error) {
				if obj.Data["value"] == "bad" {
					return fail(obj)
				}
				return obj, nil
			}})
			r.Expect(t, "added default/good", "added default/turns")
			src.Apply(object("turns", "bad")) // the store keeps the previous state
			synctest.Wait()
			src.Expire() // it also keeps it over a relist
			sleepBubble(time.Minute)
			r.Expect(t)
			equal(t, "the previous state", valueOf(inf.Get(keyOf("turns"))), "1")
			got := errs.Take()
			var failed *informer.ObjectError
			if len(got) != 2 || !errors.As(got[1], &failed) || failed.Op != "transform" || failed.Key != "default/turns" || failed.Failing != 2 {
				t.Errorf("reported %v", got)
			}
			src.Apply(object("new", "2")) // the next event tries again
			r.Expect(t, "added default/new")
			_, _ = src.Delete(keyOf("turns")) // still bad, but deleted
			r.Expect(t, "deleted default/turns")
			equal(t, "reports of a delete", len(errs.Take()), 0)
			checkView(t, r, src)
		})
	}
}

func TestShareMakesEqualPartsOneMemory(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		table := share.New()
		inf, told := watched(t, src, options{Queue: queue, Share: table, Transform: func(obj configMap) (configMap, error) {
			obj.Labels = map[string]string{"app": "web"}
			return obj, nil
		}})
		labels := func(name string) uintptr {
			obj, _, _ := inf.Get(keyOf(name))
			return reflect.ValueOf(obj.Labels).Pointer()
		}
		equal(t, "the labels of two objects are one map", labels("a") == labels("b"), true)
		hits := table.Stats().Hits
		src.Apply(object("a", "2"))
		src.Apply(object("c", "2"))
		told.Expect(t, "added default/a", "added default/b", "updated default/a", "added default/c")
		if labels("a") != labels("b") || labels("c") != labels("b") {
			t.Error("the labels of an object that has changed, or that is new, are another map")
		}
		equal(t, "the new object took something from the table", table.Stats().Hits > hits, true)
		equal(t, "value", valueOf(inf.Get(keyOf("a"))), "2")
	})
}

func TestStripManagedFieldsLeavesTheRest(t *testing.T) {
	obj, want := object("a", "1"), object("a", "1")
	obj.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "me"}}
	if got, err := informer.StripManagedFields(obj); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it returned %v, %v", got, err)
	}
}

func TestWatchListIsUsedUnlessTurnedOff(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		for mode, lists := range map[informer.WatchListMode]int{informer.WatchListOn: 0, informer.WatchListOff: 1} {
			src := informertest.NewSource(object("a", "1"))
			informertest.Run(t, newInformer(t, src, options{Queue: queue, WatchList: mode}))
			equal(t, fmt.Sprintf("LIST requests in mode %v", mode), listsOf(src), lists)
		}
	})
}

func TestAServerThatRejectsWatchListIsListed(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		src.SetFaults(informertest.Faults{RejectWatchList: true})
		var errs errorLog
		inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
		begin := time.Now()
		informertest.Run(t, inf)
		checkStore(t, inf, src)
		equal(t, "reports", len(errs.Take()), 0)
		equal(t, "syncing took", time.Since(begin), 0)
	})
}

func TestPageSizeListsInPages(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(many(25)...)
		inf := running(t, src, options{Queue: queue, PageSize: 10, WatchList: informer.WatchListOff})
		checkStore(t, inf, src)
		equal(t, "LIST requests for 25 objects in pages of 10", listsOf(src), 3)
		src.Expire()
		opened(t, src)
		equal(t, "LIST requests for two lists", listsOf(src), 6)
		for _, r := range src.Requests() {
			// If a list accepts an old state, the API server returns it without pages. After a
			// restart of the server, there may be no watch from that state.
			if r.Verb == "list" && (r.Options.ResourceVersion != "" || r.Options.Limit != 10) {
				t.Errorf("a list asks for %d objects of version %q", r.Options.Limit, r.Options.ResourceVersion)
			}
		}
	})
}

func TestAnEarlyListComesInPagesUnlessTurnedOff(t *testing.T) {
	type anyOptions = informer.Options[informer.AnyObject]
	with := func(opts anyOptions) sharedFunc {
		return informer.ClientGo{Options: func(runtime.Object) (anyOptions, error) { return opts, nil }}.NewSharedIndexInformer
	}
	// later returns a function that sets the transforms one after the other, as a factory or a manager does.
	later := func(construct sharedFunc, transforms ...cache.TransformFunc) sharedFunc {
		return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
			inf := construct(lw, example, resync, indexers)
			for _, f := range transforms {
				noError(t, inf.SetTransform(f))
			}
			return inf
		}
	}
	view := func(lw cache.ListerWatcher, _ runtime.Object, _ time.Duration, _ cache.Indexers) cache.SharedIndexInformer {
		return newInformer(t, lw, options{}).SharedIndexInformer()
	}
	same := func(obj any) (any, error) { return obj, nil }
	sameObject := func(obj informer.AnyObject) (informer.AnyObject, error) { return obj, nil }
	zero := informer.ClientGo{}.NewSharedIndexInformer
	for name, tc := range map[string]struct {
		construct sharedFunc
		limit     int64
		version   string // if it is "0", an API server answers in one piece, whatever the limit
	}{
		"early":                          {with(anyOptions{Intake: informer.IntakeEarly}), 500, ""},
		"early, of another size":         {with(anyOptions{Intake: informer.IntakeEarly, PageSize: 400}), 400, ""},
		"early, without pages":           {with(anyOptions{Intake: informer.IntakeEarly, PageSize: -1}), 500, "0"},
		"whole":                          {zero, 500, "0"},
		"whole, without pages":           {with(anyOptions{PageSize: -1}), 500, "0"},
		"shared":                         {informer.ClientGo{Share: share.New()}.NewSharedIndexInformer, 500, ""},
		"with a transform":               {with(anyOptions{Transform: sameObject}), 500, ""},
		"whole, with a transform":        {with(anyOptions{Transform: sameObject, Intake: informer.IntakeWhole}), 500, "0"},
		"a transform set later":          {later(zero, same), 500, ""},
		"of another size, set later":     {later(with(anyOptions{PageSize: 400}), same), 400, ""},
		"a transform set and taken back": {later(zero, same, nil), 500, "0"},
		"one of the options stays":       {later(with(anyOptions{Transform: sameObject}), same, nil), 500, ""},
		"whole, a transform set later":   {later(with(anyOptions{Intake: informer.IntakeWhole}), same), 500, "0"},
		"a view":                         {view, 500, "0"},
		"a view, a transform set later":  {later(view, same), 500, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			src := informertest.NewSource(object("a", "1"))
			src.SetFaults(informertest.Faults{RejectWatchList: true})
			runGuest(t, tc.construct, src)
			equal(t, name+": lists", listsOf(src), 1)
			for _, r := range src.Requests() {
				if r.Verb == "list" && (r.Options.Limit != tc.limit || r.Options.ResourceVersion != tc.version) {
					t.Errorf("%s: it lists with %+v", name, r.Options)
				}
			}
		})
	}
}

func TestTheQueueDecidesInWhichOrderChangesReachTheStore(t *testing.T) {
	for queue, want := range map[informer.QueueKind]string{
		informer.QueueAuto: "a2 a4 b3", informer.QueueDeltaFIFO: "a2 a4 b3", informer.QueueRealFIFO: "a2 b3 a4",
	} {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			for _, e := range queuedTogether(t, queue, func(src *source) {
				src.Apply(object("a", "2"))
				src.Apply(object("b", "3"))
				src.Apply(object("a", "4"))
			}) {
				told = append(told, e.New.Name+e.New.Data["value"])
			}
			equal(t, fmt.Sprint("order of queue ", queue), strings.Join(told, " "), want)
		})
	}
}

func TestEveryRequestIsTweaked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		informertest.Run(t, newInformer(t, src, options{
			TweakListOptions: func(o *metav1.ListOptions) { o.LabelSelector = "a=b" }, WatchList: informer.WatchListOff,
		}))
		opened(t, src)
		for _, r := range src.Requests() {
			if r.Options.LabelSelector != "a=b" {
				t.Errorf("%s %+v has not been tweaked", r.Verb, r.Options)
			}
		}
		equal(t, "it has listed", listsOf(src) > 0, true)
	})
}

// A client's nil list in an interface would not be nil.
func TestListWatchReturnsNoListWithAnError(t *testing.T) {
	lw := informer.ListWatch(failingClient{})
	if list, err := lw.List(metav1.ListOptions{}); list != nil || err == nil {
		t.Errorf("a failing LIST returns %v, %v", list, err)
	}
}

type failingClient struct{}

func (failingClient) List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error) {
	return nil, errors.New("no list")
}

func (failingClient) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("no watch")
}

func listsOf(src *source) int {
	n := 0
	for _, r := range src.Requests() {
		if r.Verb == "list" {
			n++
		}
	}
	return n
}
