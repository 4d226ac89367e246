package informer_test

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
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

// A source whose lists are of another type is no empty source, also while it has no objects.
func TestAnEmptyListOfAnotherTypeIsAnError(t *testing.T) {
	client := fake.NewClientset()
	lists := map[string]cache.ListerWatcher{
		"a list":   informer.ListWatch(client.CoreV1().Pods("")),
		"a stream": podStream{},
	}
	for name, lw := range lists {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var failures []error
				inf, err := informer.NewFrom(lw, options{ErrorHandler: func(_ context.Context, err error) { failures = append(failures, err) }})
				if err != nil {
					t.Fatal(err)
				}
				start(t, inf)
				time.Sleep(time.Second)
				synctest.Wait()
				if inf.HasSynced() {
					t.Error("it has synced")
				}
				var failed *informer.WatchError
				if len(failures) != 1 || !errors.As(failures[0], &failed) || failed.Op != "list" ||
					!strings.Contains(failed.Error(), "*v1.Pod is not of the informer's type, *v1.ConfigMap") {
					t.Errorf("failures: %v", failures)
				}
			})
		})
	}
}

// podStream is a source without objects that streams its first state.
type podStream struct{ cache.ListerWatcher }

func (podStream) List(metav1.ListOptions) (runtime.Object, error) {
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
}

func (podStream) Watch(metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
	w.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	return w, nil
}

// expectVersions fails the test unless the only source of inf has these versions.
func expectVersions(t *testing.T, inf *ci, resourceVersion, changed string) {
	t.Helper()
	synctest.Wait()
	want := []informer.SourceVersions{{ResourceVersion: resourceVersion, Changed: changed}}
	if got := reached(inf.Versions()); !slices.Equal(got, want) {
		t.Errorf("the versions are %+v, want %+v", got, want)
	}
}

// reached returns versions without Listed and Watching, see TestVersionsSayWhatTheSourceHasTold.
func reached(versions []informer.SourceVersions) []informer.SourceVersions {
	for i := range versions {
		versions[i].Listed, versions[i].Watching = "", 0
	}
	return versions
}

func TestVersionsSayWhatTheSourceHasTold(t *testing.T) {
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
		if v := inf.Versions()[0]; v.Listed != listed {
			t.Errorf("after a relist: %+v, want Listed %s", v, listed)
		}
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

// The source counts its versions from 1.
func TestChangedIsTheVersionOfTheLastChange(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		inf := newInformer(t, src, options{Queue: queue})
		expectVersions(t, inf, "", "")
		first := src.ResourceVersion()
		informertest.Run(t, inf)
		expectVersions(t, inf, first, first)
		added := src.Apply(object("c", "1")).ResourceVersion
		expectVersions(t, inf, added, added)
		updated := src.Apply(object("a", "2")).ResourceVersion
		expectVersions(t, inf, updated, updated)
		if _, err := src.Delete(keyOf("b")); err != nil {
			t.Fatal(err)
		}
		deleted := src.ResourceVersion()
		expectVersions(t, inf, deleted, deleted)
	})
}

func TestABookmarkMovesTheResourceVersionAndNotChanged(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		changed := src.ResourceVersion()
		inf := newInformer(t, src, options{Queue: queue, TweakListOptions: func(opts *metav1.ListOptions) { opts.LabelSelector = "value!=hidden" }})
		informertest.Run(t, inf)
		src.Apply(object("b", "hidden"))
		expectVersions(t, inf, changed, changed)
		src.Bookmark()
		expectVersions(t, inf, src.ResourceVersion(), changed)
		changed = src.Apply(object("a", "2")).ResourceVersion
		expectVersions(t, inf, changed, changed)
	})
}

// relists has options for each way in which a list is taken in.
var relists = map[string]options{
	"a whole list":      {WatchList: informer.WatchListOff, Intake: informer.IntakeWhole},
	"a list in pages":   {WatchList: informer.WatchListOff, Intake: informer.IntakeEarly, PageSize: 1},
	"a whole stream":    {WatchList: informer.WatchListOn, Intake: informer.IntakeWhole},
	"a stream in parts": {WatchList: informer.WatchListOn, Intake: informer.IntakeEarly},
}

func eachRelist(t *testing.T, test func(t *testing.T, opts options)) {
	t.Helper()
	for name, opts := range relists {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				opts.Queue = queue
				test(t, opts)
			})
		})
	}
}

// The version of a delete that only a list shows is not known.
func TestADeleteThatARelistFindsHasTheVersionOfTheList(t *testing.T) {
	eachRelist(t, func(t *testing.T, opts options) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		inf := newInformer(t, src, opts)
		r, told := recorder{}, make(chan string, 1)
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		addWatcher(t, inf, informer.WatcherFuncs[configMap]{DeleteFunc: func(context.Context, event) error {
			told <- inf.Versions()[0].Changed
			return nil
		}}, informer.WatcherOptions{})
		informertest.Run(t, inf)
		synctest.Wait()

		changed := inf.Versions()[0].Changed
		src.Expire() // nothing has changed, but the version of the list is later
		time.Sleep(hour)
		expectVersions(t, inf, src.ResourceVersion(), changed)

		src.SetFaults(informertest.Faults{Mute: true})
		added := src.Apply(object("c", "1")).ResourceVersion
		src.Expire()
		src.SetFaults(informertest.Faults{})
		time.Sleep(hour)
		expectVersions(t, inf, src.ResourceVersion(), added)

		src.SetFaults(informertest.Faults{Mute: true})
		if _, err := src.Delete(keyOf("b")); err != nil {
			t.Fatal(err)
		}
		src.Expire()
		src.SetFaults(informertest.Faults{})
		if got, want := <-told, src.ResourceVersion(); got != want {
			t.Errorf("when the watcher was told the delete, Changed was %s, want %s", got, want)
		}
		expectVersions(t, inf, src.ResourceVersion(), src.ResourceVersion())
		checkView(t, &r, src)
	})
}

func TestWhoReadsAStateFindsItsVersionInChanged(t *testing.T) {
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

// streamedDelete is a source whose stream of the first state has a delete.
type streamedDelete struct{ cache.ListerWatcher }

func (streamedDelete) Watch(metav1.ListOptions) (watch.Interface, error) {
	at := func(version string) configMap {
		obj := object("a", "1")
		obj.UID, obj.ResourceVersion = "1", version
		return obj
	}
	end := at("9")
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 3})
	w.Add(at("5"))
	w.Delete(at("7"))
	w.Action(watch.Bookmark, end)
	return w, nil
}

func TestADeleteInAStreamOfTheFirstStateHasAVersionOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := newInformer(t, streamedDelete{}, options{WatchList: informer.WatchListOn, Intake: informer.IntakeEarly})
		informertest.Run(t, inf)
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
		inf, err := informer.NewInNamespaces(src.Namespace, []string{"b", "a"}, options{Queue: queue})
		if err != nil {
			t.Fatal(err)
		}
		if got := inf.Versions(); !slices.Equal(got, []informer.SourceVersions{{Namespace: "b"}, {Namespace: "a"}}) {
			t.Errorf("before Run, the versions are %+v", got)
		}
		informertest.Run(t, inf)
		synctest.Wait()
		before := reached(inf.Versions())
		changed := src.Apply(in("a", "2")).ResourceVersion
		synctest.Wait()
		want := []informer.SourceVersions{before[0], {Namespace: "a", ResourceVersion: changed, Changed: changed}}
		if got := reached(inf.Versions()); !slices.Equal(got, want) {
			t.Errorf("the versions are %+v, want %+v", got, want)
		}
		if before[0].Changed == "" || before[0].Changed == before[0].ResourceVersion && before[1].Changed == before[1].ResourceVersion {
			t.Errorf("after the first lists, the versions are %+v", before)
		}
	})
}

func TestAnInformerThatResumesBeginsWithTheBookmarkAsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource(object("a", "1")), informertest.NewDurable()
		inf := newInformer(t, src, options{Durable: store})
		stop := informertest.Run(t, inf)
		src.Apply(object("a", "2"))
		synctest.Wait()
		stop()
		bookmark := src.ResourceVersion()

		unreachable(src)
		inf = newInformer(t, src, options{Durable: store.Reopen(), ErrorHandler: (&errorLog{}).Handle})
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
		for _, durable := range []bool{false, true} {
			if durable && opts.Queue == informer.QueueDeltaFIFO {
				continue
			}
			opts.Durable = nil
			if durable {
				opts.Durable = informertest.NewDurable()
			}
			src, errs := informertest.NewSource(object("a", "1"), object("b", "1")), errorLog{}
			opts.ErrorHandler = errs.Handle
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
			if err := src.Restore(backup); err != nil {
				t.Fatal(err)
			}
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
		client := fake.NewClientset(object("a", "1"))
		var errs errorLog
		inf := newInformer(t, informer.ListWatch(client.CoreV1().ConfigMaps("")), options{ErrorHandler: errs.Handle})
		informertest.Run(t, inf)
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), object("b", "1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
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
		src := informertest.NewSource(object("first", "1"))
		store := newPlainStore()
		inf := newInformer(t, src, options{Queue: queue, Store: store, ErrorHandler: func(context.Context, error) {}})
		var told []int
		addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			if n, _ := strconv.Atoi(e.New.Data["value"]); n >= 10 {
				told = append(told, n)
			}
			return nil
		}), informer.WatcherOptions{MaxBacklog: -1})
		informertest.Run(t, inf)
		synctest.Wait()
		store.SetFail(func(_, key string) error { return errors.New("wait until all is queued") })
		src.Apply(object("first", "2"))
		synctest.Wait()
		for n := range count {
			src.Apply(object("object-"+strconv.Itoa(n%7), strconv.Itoa(10+n)))
		}
		synctest.Wait()
		store.SetFail(nil)
		sleepBubble(time.Minute)
		last := map[int]int{}
		for i, n := range told {
			if object := (n - 10) % 7; n <= last[object] {
				t.Fatalf("change %d comes after change %d of the same object", n, last[object])
			} else {
				last[object] = n
			}
			if i > 20 && n != 10+i {
				t.Fatalf("change %d comes at place %d", n, i)
			}
		}
		if len(told) != count {
			t.Errorf("%d changes, want %d", len(told), count)
		}
	})
}

func TestBackoffPacesListsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[configMap]()
		src.Fail("list", apierrors.NewInternalError(errors.New("boom")), -1)
		inf := newInformer(t, src, options{
			WatchList:    informer.WatchListOff,
			Backoff:      &wait.Backoff{Duration: 10 * time.Minute, Factor: 1, Steps: 100},
			ErrorHandler: func(context.Context, error) {},
		})
		stop := start(t, inf)
		sleepBubble(65 * time.Minute)
		if got := len(src.Requests()); got != 7 {
			t.Errorf("%d requests in 65 minutes with 10 minutes between them", got)
		}
		stop()
	})
}
