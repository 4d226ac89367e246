package source_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
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
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestAnUnreachableSourceIsNamedAndStoppedAtOnce(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, failure := range map[string]error{
		"refused": fmt.Errorf("dial tcp 127.0.0.1:6443: %w", syscall.ECONNREFUSED),
		"403":     apierrors.NewForbidden(resource, "", errors.New("not yours")),
		"410":     errExpired,
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

func TestAnObjectOfAnotherTypeIsReportedAndNotFatal(t *testing.T) {
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
					t.Errorf("waiting ended with %v, which does not have the reason", err)
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

// Fakes are followed as AnyObject: 300 objects, then 500 writes with a pause after every 50. There
// are fewer with -short.
func TestAFakeClientSyncsAtOnceAndLosesNothing(t *testing.T) {
	metadata := func(n int) *metav1.PartialObjectMetadata {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("o", n)}}
		obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		return obj
	}
	for name, newFake := range map[string]func() (lw cache.ListerWatcher, create func(n int) error){
		"clientset": func() (cache.ListerWatcher, func(n int) error) {
			client := fake.NewClientset()
			return informer.ListWatch(client.CoreV1().ConfigMaps("")), func(n int) error {
				_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), object(fmt.Sprint("o", n), "1"), metav1.CreateOptions{})
				return err
			}
		},
		"dynamic client": func() (cache.ListerWatcher, func(n int) error) {
			scheme := apiruntime.NewScheme()
			_ = corev1.AddToScheme(scheme)
			maps := dynamicfake.NewSimpleDynamicClient(scheme).Resource(testkit.ConfigMaps)
			return informer.ListWatch(maps), func(n int) error {
				obj := must(apiruntime.DefaultUnstructuredConverter.ToUnstructured(metadata(n)))
				_, err := maps.Namespace("default").Create(t.Context(), &unstructured.Unstructured{Object: obj}, metav1.CreateOptions{})
				return err
			}
		},
		"metadata client": func() (cache.ListerWatcher, func(n int) error) {
			scheme := metadatafake.NewTestScheme()
			_ = metav1.AddMetaToScheme(scheme)
			maps := metadatafake.NewSimpleMetadataClient(scheme).Resource(testkit.ConfigMaps)
			return informer.ListWatch(maps), func(n int) error {
				_, err := maps.Namespace("default").(metadatafake.MetadataClient).CreateFake(metadata(n), metav1.CreateOptions{})
				return err
			}
		},
	} {
		for _, procs := range []int{1, runtime.GOMAXPROCS(0)} {
			for way, queue := range queues {
				t.Run(fmt.Sprintf("%s/%s/GOMAXPROCS=%d", name, way, procs), func(t *testing.T) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					lw, create := newFake()
					throughFake(t, queue, lw, create)
				})
			}
		}
	}
}

func throughFake(t *testing.T, queue informer.QueueKind, lw cache.ListerWatcher, create func(n int) error) {
	before, after := 300, 500
	if testing.Short() { // a fake clientset takes milliseconds for each object
		before, after = 50, 150
	}
	var want []string
	createNext := func() {
		n := len(want)
		want = append(want, fmt.Sprint("added default/o", n))
		if err := create(n); err != nil {
			t.Fatal(err)
		}
	}
	for range before {
		createNext()
	}
	inf := must(informer.NewFrom(lw, anyOptions{Queue: queue, ErrorHandler: func(_ context.Context, err error) { t.Error(err) }}))
	var r informertest.Recorder[informer.AnyObject]
	must(inf.AddWatcher(&r, informer.WatcherOptions{}))
	informertest.Run(t, inf)
	if got := len(r.View()); got != before {
		t.Errorf("synced with %d objects of %d", got, before)
	}
	for n := range after {
		createNext()
		if n%50 == 0 { // let the informer catch up: a fake's watch panics if more than 100 events wait
			key := keyOf(fmt.Sprint("o", len(want)-1))
			if err := inf.WaitFor(t.Context(), key, func(_ informer.AnyObject, exists bool) bool { return exists }); err != nil {
				t.Fatal(err)
			}
		}
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
