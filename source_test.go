package informer_test

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestAClientOfAnotherTypeDoesNotCompile(t *testing.T) {
	for dir, wanted := range map[string]string{"right": "", "wrong": "informer.Options[*corev1.ConfigMap]"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "./testdata/typed/"+dir)
		out, err := cmd.CombinedOutput()
		if (err != nil) != (wanted != "") || !strings.Contains(string(out), wanted) {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
	}
}

func TestAnEmptyListOfAnotherTypeIsAnError(t *testing.T) {
	client := fake.NewClientset()
	for name, lw := range map[string]cache.ListerWatcher{
		"a list":   informer.ListWatch(client.CoreV1().Pods("")),
		"a stream": stream{{Type: watch.Bookmark, Object: &corev1.Pod{ObjectMeta: endOfState("7")}}},
	} {
		inBubble(t, name, func(t *testing.T) {
			var errs errorLog
			inf := newInformer(t, lw, options{ErrorHandler: errs.Handle})
			start(t, inf)
			sleepBubble(time.Second)
			equal(t, "synced", inf.HasSynced(), false)
			failures := errs.Take()
			var failed *informer.WatchError
			if len(failures) != 1 || !errors.As(failures[0], &failed) || failed.Op != "list" ||
				!strings.Contains(failed.Error(), "*v1.Pod is not of the informer's type, *v1.ConfigMap") {
				t.Errorf("failures: %v", failures)
			}
		})
	}
}

// stream is a source that streams its first state as these events. Its lists are empty, and of pods.
type stream []watch.Event

func (stream) List(metav1.ListOptions) (runtime.Object, error) {
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
}

func (s stream) Watch(metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: len(s)})
	for _, e := range s {
		w.Action(e.Type, e.Object)
	}
	return w, nil
}

// endOfState returns the metadata of the bookmark after a first state.
func endOfState(version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{ResourceVersion: version, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
}

// expectVersions fails the test unless the only source of inf has these versions.
func expectVersions(t *testing.T, inf *ci, resourceVersion, changed string) {
	t.Helper()
	synctest.Wait()
	equal(t, "versions", reached(inf.Versions()), []informer.SourceVersions{{ResourceVersion: resourceVersion, Changed: changed}})
}

// reached returns versions without Listed and Watching, see TestVersionsAreThoseOfTheSource.
func reached(versions []informer.SourceVersions) []informer.SourceVersions {
	for i := range versions {
		versions[i].Listed, versions[i].Watching = "", 0
	}
	return versions
}

func TestVersionsAreThoseOfTheSource(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		store, opts := informertest.NewDurable(), options{Queue: queue, WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore}
		if queue == informer.QueueRealFIFO {
			opts.Durable = store
		}
		inf := newInformer(t, src, opts)
		if v := inf.Versions()[0]; v.Listed != "" || v.Watching != 0 {
			t.Errorf("before Run: %+v", v)
		}
		stop := informertest.Run(t, inf)
		listed := src.ResourceVersion()
		expect := func(what, listed string, watching time.Duration) {
			t.Helper()
			synctest.Wait()
			if v := inf.Versions()[0]; v.Listed != listed || v.Watching.Round(time.Second) != watching {
				t.Errorf("%s: %+v, want Listed %s and Watching %v", what, v, listed, watching)
			}
		}
		expect("at the start", listed, 0)
		src.Apply(object("a", "2"))
		time.Sleep(time.Minute)
		expect("after a minute", listed, time.Minute)
		unreachable(src)
		time.Sleep(time.Minute)
		expect("without a connection", listed, 0)
		src.Heal()
		time.Sleep(time.Hour) // the API server ends watches after a while
		synctest.Wait()
		if v := inf.Versions()[0]; v.Listed != listed || v.Watching == 0 || v.Watching > 11*time.Minute {
			t.Errorf("connected again: %+v", v)
		}
		src.Expire()
		src.Apply(object("a", "3"))
		time.Sleep(time.Hour)
		listed = src.ResourceVersion()
		synctest.Wait()
		equal(t, "Listed after a relist", inf.Versions()[0].Listed, listed)
		stop()
		expect("after the end", listed, 0)
		if opts.Durable == nil {
			return
		}
		src.Apply(object("a", "4"))
		inf = newInformer(t, src, options{Queue: queue, Durable: store.Reopen()})
		informertest.Run(t, inf)
		expect("gone on from the bookmark", listed, 0)
	})
}

// A bookmark moves only the resource version.
func TestChangedIsTheVersionOfTheLastChange(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		inf := newInformer(t, src, options{Queue: queue, TweakListOptions: func(opts *metav1.ListOptions) { opts.LabelSelector = "value!=hidden" }})
		expectVersions(t, inf, "", "")
		first := src.ResourceVersion()
		informertest.Run(t, inf)
		expectVersions(t, inf, first, first)
		src.Apply(object("c", "hidden"))
		expectVersions(t, inf, first, first)
		src.Bookmark()
		expectVersions(t, inf, src.ResourceVersion(), first)
		added := src.Apply(object("d", "1")).ResourceVersion
		expectVersions(t, inf, added, added)
		updated := src.Apply(object("a", "2")).ResourceVersion
		expectVersions(t, inf, updated, updated)
		_, _ = src.Delete(keyOf("b"))
		expectVersions(t, inf, src.ResourceVersion(), src.ResourceVersion())
	})
}

// eachRelist runs a test with each way in which a list is taken in.
func eachRelist(t *testing.T, test func(t *testing.T, opts options)) {
	t.Helper()
	for name, opts := range map[string]options{
		"a whole list":      {WatchList: informer.WatchListOff, Intake: informer.IntakeWhole},
		"a list in pages":   {WatchList: informer.WatchListOff, Intake: informer.IntakeEarly, PageSize: 1},
		"a whole stream":    {WatchList: informer.WatchListOn, Intake: informer.IntakeWhole},
		"a stream in parts": {WatchList: informer.WatchListOn, Intake: informer.IntakeEarly},
	} {
		eachQueueOf(t, name, func(t *testing.T, queue informer.QueueKind) {
			opts.Queue = queue
			test(t, opts)
		})
	}
}

func TestADeleteThatARelistFindsHasTheVersionOfTheList(t *testing.T) {
	eachRelist(t, func(t *testing.T, opts options) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		inf := newInformer(t, src, opts)
		told := "" // Changed at the last delete
		r := recorder{Hook: func(_ context.Context, e event) error {
			if e.Type == informer.EventDeleted {
				told = inf.Versions()[0].Changed
			}
			return nil
		}}
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		informertest.Run(t, inf)
		synctest.Wait()
		relist := func(missed func()) {
			src.SetFaults(informertest.Faults{Mute: true})
			missed()
			src.Expire()
			src.SetFaults(informertest.Faults{})
			time.Sleep(hour)
		}

		changed := inf.Versions()[0].Changed
		relist(func() {}) // nothing has changed, but the version of the list is later
		expectVersions(t, inf, src.ResourceVersion(), changed)

		relist(func() { changed = src.Apply(object("c", "1")).ResourceVersion })
		expectVersions(t, inf, src.ResourceVersion(), changed)

		relist(func() { _, _ = src.Delete(keyOf("b")) })
		expectVersions(t, inf, src.ResourceVersion(), src.ResourceVersion())
		equal(t, "Changed when the watcher got the delete", told, src.ResourceVersion())
		checkView(t, &r, src)
	})
}

func TestAReaderOfAStateFindsItsVersionInChanged(t *testing.T) {
	eachRelist(t, func(t *testing.T, opts options) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		store := informertest.NewStore(cache.NewStore(cache.MetaNamespaceKeyFunc))
		var inf *ci
		check := func(op, _ string) error {
			if op == "get" || op == "list" {
				return nil
			}
			changed := inf.Versions()[0].Changed
			for _, obj := range store.List() {
				version := obj.(configMap).ResourceVersion
				if order, err := resourceversion.CompareResourceVersion(changed, version); err != nil || order < 0 {
					t.Errorf("after %s, Changed is %q, but the store has version %s", op, changed, version)
				}
			}
			return nil
		}
		opts.Store = store
		inf = newInformer(t, src, opts)
		store.FailAfter(check)
		informertest.Run(t, inf)
		for n := range 20 {
			src.Apply(object("a", strconv.Itoa(n)))
			src.Apply(object("b", strconv.Itoa(n)))
			if n%7 == 0 {
				src.Expire()
			}
			time.Sleep(time.Minute)
		}
		checkStore(t, inf, src)
	})
}

func TestADeleteInAStreamOfTheFirstStateHasAVersionOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(version string) configMap {
			obj := object("a", "1")
			obj.UID, obj.ResourceVersion = "1", version
			return obj
		}
		src := stream{{Type: watch.Added, Object: at("5")}, {Type: watch.Deleted, Object: at("7")}, {Type: watch.Bookmark, Object: &corev1.ConfigMap{ObjectMeta: endOfState("9")}}}
		inf := running(t, src, options{WatchList: informer.WatchListOn, Intake: informer.IntakeEarly})
		expectVersions(t, inf, "9", "7")
	})
}

func TestEachNamespaceHasVersionsOfItsOwn(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		in := func(namespace, value string) configMap {
			obj := object("x", value)
			obj.Namespace = namespace
			return obj
		}
		src := informertest.NewSource(in("a", "1"), in("b", "1"))
		inf := must(informer.NewInNamespaces(src.Namespace, []string{"b", "a"}, options{Queue: queue}))
		equal(t, "versions before Run", inf.Versions(), []informer.SourceVersions{{Namespace: "b"}, {Namespace: "a"}})
		informertest.Run(t, inf)
		synctest.Wait()
		before := reached(inf.Versions())
		if before[0].Changed == "" || before[0].Changed == before[0].ResourceVersion && before[1].Changed == before[1].ResourceVersion {
			t.Errorf("after the first lists, the versions are %+v", before)
		}
		changed := src.Apply(in("a", "2")).ResourceVersion
		synctest.Wait()
		equal(t, "versions", reached(inf.Versions()), []informer.SourceVersions{before[0], {Namespace: "a", ResourceVersion: changed, Changed: changed}})
	})
}

func TestAnInformerThatResumesBeginsWithTheBookmarkAsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
		testkit.OneRun(t, src, store, options{})
		bookmark := src.ResourceVersion()

		unreachable(src)
		inf := newInformer(t, src, options{Durable: store.Reopen(), ErrorHandler: quiet})
		expectVersions(t, inf, "", "")
		start(t, inf)
		expectVersions(t, inf, "", bookmark)
		src.Heal()
		time.Sleep(hour)
		expectVersions(t, inf, bookmark, bookmark)
		changed := src.Apply(object("a", "3")).ResourceVersion
		expectVersions(t, inf, changed, changed)
	})
}

func TestChangedGoesBackWithTheServer(t *testing.T) {
	eachRelist(t, func(t *testing.T, opts options) {
		opts.ErrorHandler = quiet
		for _, durable := range []informer.Durable{nil, informertest.NewDurable()} {
			if opts.Durable = durable; durable != nil && opts.Queue == informer.QueueDeltaFIFO {
				continue
			}
			src := informertest.NewSource(object("a", "1"), object("b", "1"))
			inf := newInformer(t, src, opts)
			stop := informertest.Run(t, inf)
			backup := src.ResourceVersion()
			for n := range 5 {
				src.Apply(object("a", strconv.Itoa(n)))
			}
			lost := src.ResourceVersion()
			expectVersions(t, inf, lost, lost)

			unreachable(src)
			time.Sleep(hour)
			noError(t, src.Restore(backup))
			src.Heal()
			time.Sleep(hour)
			expectVersions(t, inf, backup, backup)
			changed := src.Apply(object("b", "2")).ResourceVersion
			expectVersions(t, inf, changed, changed)
			stop()
		}
	})
}

func TestTheObjectsOfAFakeClientHaveNoVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maps := fake.NewClientset(object("a", "1")).CoreV1().ConfigMaps("default")
		inf := running(t, informer.ListWatch(maps), options{ErrorHandler: quiet})
		must(maps.Create(t.Context(), object("b", "1"), metav1.CreateOptions{}))
		noError(t, maps.Delete(t.Context(), "a", metav1.DeleteOptions{}))
		synctest.Wait()
		if got := inf.Versions(); len(got) != 1 || got[0].Changed != "" {
			t.Errorf("the versions are %+v", got)
		}
	})
}

// While the store is behind, a DeltaFIFO takes the changes of one object together. If many changes wait, it gets entries
// of up to 256 changes, which it must not mix up.
func TestChangesThatWaitReachWatchersInOrder(t *testing.T) {
	const count = 700
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		told := queuedTogether(t, queue, func(src *source) {
			for n := range count {
				src.Apply(object("object-"+strconv.Itoa(n%7), strconv.Itoa(n)))
			}
		})
		for i, e := range told {
			if n, _ := strconv.Atoi(e.New.Data["value"]); i > 20 && n != i {
				t.Fatalf("change %d comes at place %d", n, i)
			}
		}
		equal(t, "changes", len(told), count)
	})
}

// queuedTogether returns the events of changes that were in the queue at the same time, because the store
// failed until all were there. It checks the order of the events of each object.
func queuedTogether(t *testing.T, queue informer.QueueKind, change func(*source)) []event {
	t.Helper()
	src, store := informertest.NewSource(object("first", "1")), newPlainStore()
	inf := newInformer(t, src, options{Queue: queue, Store: store, ErrorHandler: quiet})
	var r recorder
	addWatcher(t, inf, &r, informer.WatcherOptions{MaxBacklog: -1})
	informertest.Run(t, inf)
	synctest.Wait()
	store.SetFail(func(string, string) error { return errors.New("wait until all is queued") })
	src.Apply(object("first", "2"))
	synctest.Wait()
	change(src)
	synctest.Wait()
	store.SetFail(nil)
	sleepBubble(time.Minute)
	checkView(t, &r, src)
	return slices.DeleteFunc(r.Events(), func(e event) bool { return e.New.Name == "first" })
}

func TestBackoffPacesListsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[configMap]()
		src.Fail("list", apierrors.NewInternalError(errors.New("boom")), -1)
		start(t, newInformer(t, src, options{
			WatchList:    informer.WatchListOff,
			Backoff:      &wait.Backoff{Duration: 10 * time.Minute, Factor: 1, Steps: 100},
			ErrorHandler: quiet,
		}))
		sleepBubble(65 * time.Minute)
		equal(t, "requests in 65 minutes with 10 minutes between them", len(src.Requests()), 7)
	})
}

// hangingLW is a source whose answer to a question for its version may not come.
type hangingLW struct {
	*source
	hangs atomic.Bool
}

func (h *hangingLW) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if h.hangs.Load() && opts.Limit == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.source.ListWithContext(ctx, opts)
}

func TestRunEndsDuringAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lw := &hangingLW{source: informertest.NewSource(letters("ab")...)}
		inf := must(informer.NewFrom(lw, options{WatchList: informer.WatchListOff}))
		ctx, cancel := context.WithCancel(context.Background())
		done := asking(func() error { return inf.Run(ctx) })
		mustSync(t, inf)
		lw.hangs.Store(true)
		asking, give := context.WithCancel(context.Background())
		go func() { _, _ = inf.ServerVersion(asking, "") }()
		synctest.Wait()
		cancel()
		select {
		case err := <-done:
			noError(t, err)
		case <-time.After(time.Hour):
			t.Error("Run has not returned an hour after its ctx has ended")
		}
		give()
	})
}
