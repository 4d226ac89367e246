package informer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// firstState is an odd first state of a source, and one watch event for each of its objects after it.
type firstState struct {
	before   []configMap   // in the store before Run
	list     []configMap   // may have a key twice
	broken   int           // how many lists end in the middle
	streamed []watch.Event // if it is not nil, the first state comes as a stream
	fails    bool          // Transform fails for every third version
}

func randomFirstState(r *rand.Rand) (f firstState) {
	version := 0
	obj := func() configMap {
		version++
		o := object("o"+strconv.Itoa(r.IntN(8)), strconv.Itoa(version))
		o.UID, o.ResourceVersion = types.UID("uid"+strconv.Itoa(r.IntN(2))), strconv.Itoa(version)
		return o
	}
	for range r.IntN(3) {
		f.before = append(f.before, obj())
	}
	for range 1 + r.IntN(12) {
		o := obj()
		f.list = append(f.list, o)
		if r.IntN(4) == 0 {
			f.list = append(f.list, o)
		}
	}
	f.broken, f.fails = r.IntN(3), r.IntN(2) == 0
	if r.IntN(2) == 0 {
		for _, o := range f.list {
			f.streamed = append(f.streamed, watch.Event{Type: []watch.EventType{watch.Added, watch.Added, watch.Modified, watch.Deleted}[r.IntN(4)], Object: o})
		}
	}
	return f
}

// lastVersion is that of every list.
const lastVersion = "1000"

func (f firstState) page(opts metav1.ListOptions) (runtime.Object, error) {
	list, half := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: lastVersion}}, len(f.list)/2
	part := f.list[half:]
	if opts.Continue == "" {
		part, list.Continue = f.list[:half], "half"
	}
	for _, o := range part {
		list.Items = append(list.Items, *o.DeepCopy())
	}
	return list, nil
}

func (f firstState) watch(opts metav1.ListOptions) watch.Interface {
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 100})
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		for _, e := range f.streamed {
			w.Action(e.Type, e.Object.DeepCopyObject())
		}
		end := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: lastVersion, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		w.Action(watch.Bookmark, end)
	}
	after, _ := strconv.Atoi(opts.ResourceVersion)
	for i := range 8 {
		o := object("o"+strconv.Itoa(i), "live")
		if o.UID, o.ResourceVersion = "uid0", strconv.Itoa(1001+i); 1001+i > after {
			w.Modify(o)
		}
	}
	return w
}

// told returns the events for each key, over the store of the options, and in the end the calls of Observer.Apply.
func (f firstState) told(t *testing.T, opts options) map[string][]string {
	lists := 0
	lw := &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Continue != "" {
				if lists++; lists <= f.broken {
					return nil, apierrors.NewInternalError(context.DeadlineExceeded)
				}
			}
			return f.page(o)
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.watch(o), nil
		},
	}
	opts.ErrorHandler = func(context.Context, error) {}
	if f.streamed == nil {
		opts.WatchList = informer.WatchListOff
	} else {
		opts.WatchList = informer.WatchListOn
	}
	if f.fails {
		opts.Transform = func(o configMap) (configMap, error) {
			if n, _ := strconv.Atoi(o.ResourceVersion); n%3 == 0 {
				return nil, errors.New("odd")
			}
			return o, nil
		}
	}
	applied := map[string][]string{}
	opts.Observer = &informer.Observer{Apply: func(i informer.ApplyInfo) {
		applied[i.Key] = append(applied[i.Key], fmt.Sprint(i.Type, " ", i.Origin))
	}}
	inf := newInformer(t, lw, opts)
	events := map[string][]string{}
	addWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e informer.Event[configMap]) error {
		key := e.Object().Name
		events[key] = append(events[key], fmt.Sprintf("%v %v %s→%s", e.Type, e.Origin, text(e.Old), text(e.New)))
		return nil
	}), informer.WatcherOptions{MaxBacklog: -1})
	for _, o := range f.before {
		if opts.Store != nil {
			_ = opts.Store.Add(o.DeepCopy())
		} else if err := inf.SharedIndexInformer().GetIndexer().Add(o.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	stop := start(t, inf)
	sleepBubble(10 * time.Minute) // over the pauses after broken lists
	stop()
	for key, infos := range applied {
		name := strings.TrimPrefix(key, "default/")
		events[name] = append(events[name], infos...)
	}
	return events
}

func text(o configMap) string {
	if o == nil {
		return "nothing"
	}
	return string(o.UID) + "/" + o.ResourceVersion
}

// The informer's own store takes the objects of a first list without looking for what is there. Watchers must not notice.
func TestWatchersGetTheSameOfOddFirstStatesOverTheOwnStore(t *testing.T) {
	for seed := range uint64(300) {
		f := randomFirstState(rand.New(rand.NewPCG(seed, 1)))
		for _, intake := range []informer.IntakeMode{informer.IntakeEarly, informer.IntakeWhole} {
			synctest.Test(t, func(t *testing.T) {
				queue := informer.QueueRealFIFO
				want := f.told(t, options{Queue: queue, Intake: intake, Store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})})
				got := f.told(t, options{Queue: queue, Intake: intake})
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("seed %d, intake %v, %+v (-another store +own):\n%s", seed, intake, f, diff)
				}
			})
		}
	}
}
