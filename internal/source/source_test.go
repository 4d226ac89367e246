package source_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestAnUnreachableSourceIsNamedAndStoppedAtOnce(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, failure := range map[string]error{
		"refused": fmt.Errorf("dial tcp 127.0.0.1:6443: %w", syscall.ECONNREFUSED),
		"403":     apierrors.NewForbidden(resource, "", errors.New("not yours")),
		"429":     apierrors.NewTooManyRequests("slow down", 1),
		"500":     apierrors.NewInternalError(errors.New("boom")),
		"garbage": errors.New("invalid character '<' looking for beginning of value"),
	} {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				src := informertest.NewSource(object("a", "1"))
				src.Fail("watch", failure, -1)
				src.Fail("list", failure, -1)
				var errs errorLog
				inf := newInformer(t, src, options{Queue: queue, Name: "maps", ErrorHandler: errs.Handle})
				stop := start(t, inf)
				err := inf.WaitForSync(within(t, 10*time.Minute))
				var failed *informer.WatchError
				if !errors.Is(err, failure) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &failed) || failed.Resource != "maps" {
					t.Errorf("waiting ended with %v", err)
				}
				if n := len(errs.Take()); n == 0 || n > 2 {
					t.Errorf("in 10 minutes reported %d errors", n)
				}
				if n := len(src.Requests()); n < 10 {
					t.Errorf("in 10 minutes tried %d times", n)
				}
				begin := time.Now()
				stop()
				if took := time.Since(begin); took > 0 {
					t.Errorf("stopping took %v", took)
				}
			})
		})
	}
}

func TestASourceThatIgnoresItsCtxIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource[configMap]()
		src.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
		release := func() { src.SetFaults(informertest.Faults{RejectWatchList: true}) }
		deaf := &cache.ListWatch{
			ListFunc:             src.List,
			WatchFuncWithContext: src.WatchWithContext,
		}
		inf := newInformer(t, deaf, options{WatchList: informer.WatchListOff})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- inf.Run(ctx) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("Run returned %v while a LIST is under way", err)
		default:
		}
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsNoObjectOfTheTypeIsReportedAndNotFatal(t *testing.T) {
	nameless := object("", "1")
	nameless.ResourceVersion = "7"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", ResourceVersion: "7"}}
	for name, tc := range map[string]struct {
		event watch.Event
		says  string
	}{
		"another type":     {watch.Event{Type: watch.Added, Object: secret}, "Secret"},
		"nil":              {watch.Event{Type: watch.Modified}, "nil"},
		"typed nil":        {watch.Event{Type: watch.Deleted, Object: configMap(nil)}, "nil"},
		"nameless":         {watch.Event{Type: watch.Added, Object: nameless}, "no name"},
		"no metadata":      {watch.Event{Type: watch.Added, Object: &metav1.Status{}}, "Status"},
		"a table":          {watch.Event{Type: watch.Added, Object: &metav1.Table{}}, "Table"},
		"unknown type":     {watch.Event{Type: "SURPRISE", Object: object("x", "1")}, "SURPRISE"},
		"error of nothing": {watch.Event{Type: watch.Error}, "does not say"},
		"error of nil":     {watch.Event{Type: watch.Error, Object: (*metav1.Status)(nil)}, "does not say"},
	} {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				src := informertest.NewSource(object("a", "1"))
				var errs errorLog
				inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
				var r recorder
				addWatcher(t, inf, &r, informer.WatcherOptions{})
				informertest.Run(t, inf)
				synctest.Wait()
				src.Inject(tc.event)
				sleepBubble(time.Minute)
				src.Apply(object("a", "2"))
				r.Expect(t, "added default/a", "updated default/a")
				r.Expect(t)
				got := errs.Take()
				if len(got) != 1 || !strings.Contains(got[0].Error(), tc.says) {
					t.Errorf("reported %v", got)
				}
				var failed *informer.ObjectError
				if name == "another type" && (!errors.As(got[0], &failed) || failed.Key != "default/s") {
					t.Errorf("reported %v, without the key", got)
				}
			})
		})
	}
}

func TestAListThatHoldsSomethingElse(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}
	for name, tc := range map[string]struct {
		item  apiruntime.Object
		says  string
		fatal bool // the whole list fails
	}{
		"another type": {secret, "Secret", true},
		"nil":          {nil, "", false},
		"typed nil":    {configMap(nil), "nil", false},
		"nameless":     {object("", "1"), "no name", false},
		"no metadata":  {&metav1.Status{}, "Status", false},
	} {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
				src := informertest.NewSource(object("a", "1"))
				src.SetFaults(informertest.Faults{ListItems: []apiruntime.Object{tc.item}})
				var errs errorLog
				inf := newInformer(t, src, options{Queue: queue, WatchList: informer.WatchListOff, ErrorHandler: errs.Handle})
				start(t, inf)
				err := inf.WaitForSync(within(t, time.Hour))
				got := errs.Take()
				if len(got) != 1 || !strings.Contains(got[0].Error(), tc.says) {
					t.Errorf("reported %v", got)
				}
				if tc.fatal != (err != nil) {
					t.Errorf("waiting ended with %v", err)
				}
				if tc.fatal && !strings.Contains(err.Error(), tc.says) {
					t.Errorf("waiting ended with %v, which does not say why", err)
				}
				src.Heal()
				if err := inf.WaitForSync(within(t, time.Hour)); err != nil {
					t.Error(err)
				}
				checkStore(t, inf, src)
			})
		})
	}
}

func TestAStreamOfAnotherTypeIsNoEmptyCluster(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}})
		var errs errorLog
		inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
		start(t, inf)
		err := inf.WaitForSync(within(t, time.Hour))
		if err == nil || !strings.Contains(err.Error(), "Secret") || !strings.Contains(err.Error(), "ConfigMap") {
			t.Errorf("waiting ended with %v", err)
		}
	})
}

type countedWatches struct {
	*informertest.Source[*corev1.Secret]
	open, most atomic.Int64
}

type countedWatch struct {
	watch.Interface
	stop func()
}

func (w countedWatch) Stop() { w.Interface.Stop(); w.stop() }

func (c *countedWatches) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := c.Source.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.most.Store(max(c.most.Load(), c.open.Add(1)))
	return countedWatch{w, sync.OnceFunc(func() { c.open.Add(-1) })}, nil
}

// The reflector itself does not stop a stream of objects that it cannot use.
func TestAStreamThatIsRefusedIsStopped(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := &countedWatches{Source: informertest.NewSource(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}})}
		inf := newInformer(t, src, options{Queue: queue, ErrorHandler: func(context.Context, error) {}})
		start(t, inf)
		sleepBubble(10 * time.Minute)
		if most := src.most.Load(); most > 2 { // the watch before it may be about to end
			t.Errorf("%d watches were open at the same time", most)
		}
	})
}

func TestAListWithoutAVersionIsReported(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		src.SetFaults(informertest.Faults{OmitListVersion: true})
		var errs errorLog
		inf := newInformer(t, src, options{Queue: queue, WatchList: informer.WatchListOff, ErrorHandler: errs.Handle})
		var r recorder
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		informertest.Run(t, inf)
		src.Apply(object("b", "1"))
		sleepBubble(time.Minute)
		checkStore(t, inf, src)
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "resourceVersion") {
			t.Errorf("reported %v", got)
		}
	})
}

func TestNoListAtAllIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs errorLog
		inf := newInformer(t, &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
				return (*corev1.ConfigMapList)(nil), nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, nil },
		}, options{ErrorHandler: errs.Handle})
		start(t, inf)
		err := inf.WaitForSync(within(t, time.Hour))
		if err == nil || !strings.Contains(err.Error(), "no list") {
			t.Errorf("waiting ended with %v", err)
		}
	})
}

// Tests with client-go's fakes: 300 objects, then 500 writes with a pause after every 50. There
// are fewer with -short.

func TestAFakeClientsetSyncsAtOnceAndLosesNothing(t *testing.T) {
	for name, queue := range queues {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			client := fake.NewClientset()
			maps := client.CoreV1().ConfigMaps("default")
			throughFake(t, queue, informer.ListWatch(client.CoreV1().ConfigMaps("")), func(n int) error {
				_, err := maps.Create(t.Context(), object(fmt.Sprint("o", n), "1"), metav1.CreateOptions{})
				return err
			})
		})
	}
}

// eachQueueAndProcs runs a test over both queues with one and with all processors.
func eachQueueAndProcs(t *testing.T, test func(t *testing.T, queue informer.QueueKind)) {
	t.Helper()
	for _, procs := range []int{1, runtime.GOMAXPROCS(0)} {
		for name, queue := range queues {
			t.Run(fmt.Sprintf("%s/GOMAXPROCS=%d", name, procs), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				test(t, queue)
			})
		}
	}
}

func TestAFakeDynamicClientSyncsAtOnceAndLosesNothing(t *testing.T) {
	eachQueueAndProcs(t, func(t *testing.T, queue informer.QueueKind) {
		scheme := apiruntime.NewScheme()
		_ = corev1.AddToScheme(scheme)
		maps := dynamicfake.NewSimpleDynamicClient(scheme).Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
		throughFake(t, queue, informer.ListWatch(maps), func(n int) error {
			obj := &unstructured.Unstructured{}
			obj.SetAPIVersion("v1")
			obj.SetKind("ConfigMap")
			obj.SetName(fmt.Sprint("o", n))
			_, err := maps.Namespace("default").Create(t.Context(), obj, metav1.CreateOptions{})
			return err
		})
	})
}

func TestAFakeMetadataClientSyncsAtOnceAndLosesNothing(t *testing.T) {
	eachQueueAndProcs(t, func(t *testing.T, queue informer.QueueKind) {
		scheme := metadatafake.NewTestScheme()
		_ = metav1.AddMetaToScheme(scheme)
		maps := metadatafake.NewSimpleMetadataClient(scheme).Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
		throughFake(t, queue, informer.ListWatch(maps), func(n int) error {
			obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("o", n)}}
			obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			_, err := maps.Namespace("default").(metadatafake.MetadataClient).CreateFake(obj, metav1.CreateOptions{})
			return err
		})
	})
}

// throughFake follows a fake as AnyObject, whatever its type.
func throughFake(t *testing.T, queue informer.QueueKind, lw cache.ListerWatcher, create func(n int) error) {
	t.Helper()
	before, after := 300, 500
	if testing.Short() { // a fake clientset takes milliseconds for each object
		before, after = 50, 150
	}
	for n := range before {
		if err := create(n); err != nil {
			t.Fatal(err)
		}
	}
	inf, err := informer.NewFrom(lw, informer.Options[informer.AnyObject]{Queue: queue, ErrorHandler: func(_ context.Context, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	var r informertest.Recorder[informer.AnyObject]
	if _, err := inf.AddWatcher(&r, informer.WatcherOptions{}); err != nil {
		t.Fatal(err)
	}
	informertest.Run(t, inf)
	if got := len(r.View()); got != before {
		t.Errorf("synced with %d objects of %d", got, before)
	}
	for n := before; n < before+after; n++ {
		if err := create(n); err != nil {
			t.Fatal(err)
		}
		if n%50 == 0 { // let the informer catch up: a fake's watch panics if more than 100 events wait
			key := types.NamespacedName{Namespace: "default", Name: fmt.Sprint("o", n)}
			if err := inf.WaitFor(t.Context(), key, func(_ informer.AnyObject, exists bool) bool { return exists }); err != nil {
				t.Fatal(err)
			}
		}
	}
	var want []string
	for n := range before + after {
		want = append(want, fmt.Sprint("added default/o", n))
	}
	r.Expect(t, want...)
	r.Expect(t)
}

func TestAFakeControllerSourceIsFollowedWithoutAReport(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := cachetesting.NewFakeControllerSource()
		defer src.Broadcaster.Shutdown()
		src.Add(object("a", "1"))
		var errs errorLog
		inf := newInformer(t, src, options{Queue: queue, ErrorHandler: errs.Handle})
		var r recorder
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		informertest.Run(t, inf)
		src.Modify(object("a", "2"))
		src.Delete(object("a", "2"))
		r.Expect(t, "added default/a", "updated default/a", "deleted default/a")
		if got := errs.Take(); len(got) != 0 {
			t.Errorf("reported %v", got)
		}
	})
}

func TestAllOfAFakesWatchIsToldThoughItEnds(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		const changes = 90
		client := fake.NewClientset()
		var watches []*watch.RaceFreeFakeWatcher
		client.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
			w := watch.NewRaceFreeFake()
			watches = append(watches, w)
			return true, w, nil
		})
		inf := newInformer(t, informer.ListWatch(client.CoreV1().ConfigMaps("default")), options{Queue: queue, ErrorHandler: ignore})
		var r recorder
		addWatcher(t, inf, &r, informer.WatcherOptions{})
		informertest.Run(t, inf)
		synctest.Wait()
		var want []string
		for n := range changes {
			name := fmt.Sprint("o", n)
			watches[0].Add(object(name, "1"))
			want = append(want, "added default/"+name)
		}
		watches[0].Stop()
		r.Expect(t, want...)
		sleepBubble(10 * time.Second)
		if len(watches) != 2 {
			t.Fatalf("%d watches were opened", len(watches))
		}
		watches[1].Add(object("later", "1"))
		r.Expect(t, "added default/later")
	})
}
