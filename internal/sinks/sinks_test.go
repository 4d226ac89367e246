package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // most tests provoke errors
	informertest.Main(m)
}

type configMap = testkit.ConfigMap

// values is a sink: a map that a program makes of config maps. It complains about calls that cannot be right.
type values struct {
	t     *testing.T
	fail  func(call string) error // nil for never
	now   map[string]string       // the values by key
	uids  map[string]types.UID
	calls []string
}

func newValues(t *testing.T) *values {
	return &values{t: t, now: map[string]string{}, uids: map[string]types.UID{}}
}

// called notes a call. after is called if it works, or if it fails after it has taken effect.
func (v *values) called(call string, after func()) error {
	v.calls = append(v.calls, call)
	var err error
	if v.fail != nil {
		err = v.fail(call)
	}
	if err == nil || errors.Is(err, errAfter) {
		after()
	}
	return err
}

// errAfter is the error of a call that has taken effect.
var errAfter = errors.New("too late")

func (v *values) Put(_ context.Context, key string, obj configMap) error {
	if was, exists := v.uids[key]; exists && was != obj.UID {
		v.t.Errorf("%s: the object %s is put over %s", key, obj.UID, was)
	}
	return v.called("put "+key+" "+obj.Data["value"], func() { v.now[key], v.uids[key] = obj.Data["value"], obj.UID })
}

func (v *values) Remove(_ context.Context, key string, uid types.UID) error {
	if was, exists := v.uids[key]; exists && was != uid {
		v.t.Errorf("%s: %s is removed, not %s", key, uid, was)
	}
	return v.called("remove "+key, func() { delete(v.now, key); delete(v.uids, key) })
}

func (v *values) take() []string {
	calls := v.calls
	v.calls = nil
	return calls
}

// fill runs an informer with a sink until the end of the test.
func fill(t *testing.T, lw cache.ListerWatcher, sink informer.Sink[configMap], opts testkit.Options) *informer.SinkInformer[configMap] {
	t.Helper()
	opts.ErrorHandler = testkit.Ignore
	inf, err := informer.NewSink(lw, sink, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- inf.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return inf
}

func TestASinkGetsEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, sink := informertest.NewSource(testkit.Object("a", "1"), testkit.Object("b", "1")), newValues(t)
		inf := fill(t, src, sink, testkit.Options{})
		if err := inf.WaitForSync(testkit.Within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		check := func(when string, want ...string) {
			t.Helper()
			testkit.SleepBubble(5 * time.Minute)
			if got := sink.take(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		check("at first", "put default/a 1", "put default/b 1")
		src.Apply(testkit.Object("a", "2"))
		src.Apply(testkit.Object("c", "1"))
		check("later", "put default/a 2", "put default/c 1")
		if _, err := src.Delete(testkit.KeyOf("b")); err != nil {
			t.Fatal(err)
		}
		check("after a delete", "remove default/b")
		src.Expire()
		src.Disconnect()
		check("after a list of the same")
		testkit.Unreachable(src)
		src.Disconnect()
		for _, name := range []string{"a", "c"} {
			if _, err := src.Delete(testkit.KeyOf(name)); err != nil {
				t.Fatal(err)
			}
		}
		src.Apply(testkit.Object("c", "new"))
		src.Expire()
		src.Heal()
		testkit.SleepBubble(5 * time.Minute)
		got := sink.take()
		if c := slices.Index(got, "remove default/c"); len(got) != 3 || !slices.Contains(got, "remove default/a") || c < 0 || got[c+1] != "put default/c new" {
			t.Errorf("after a list with another object of the same name: %q", got)
		}
		if h := inf.Health(); h.Objects != 1 || h.Ready() != nil || !strings.HasSuffix(h.Store, "sinks_test.values") || inf.ResourceVersion() != src.ResourceVersion() {
			t.Errorf("%+v", h)
		}
	})
}

// Whatever fails, the sink has the state of the source in the end, and nothing in it was missing while it existed.
func TestASinkThatFailsLosesNothing(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			sink, failing := newValues(t), rand.New(rand.NewPCG(seed, 2))
			sink.fail = func(string) error {
				switch failing.IntN(20) {
				case 0:
					return errors.New("failed")
				case 1:
					return errAfter
				}
				return nil
			}
			src := informertest.NewSource(testkit.Object("o1", "0"), testkit.Object("o2", "0"))
			fill(t, src, sink, testkit.Options{Queue: []informer.QueueKind{informer.QueueDeltaFIFO, informer.QueueRealFIFO}[seed%2]})
			testkit.SleepBubble(time.Hour)
			for n := range 60 {
				name := "o" + strconv.Itoa(random.IntN(6))
				switch random.IntN(8) {
				case 0:
					src.Disconnect()
				case 1:
					src.Expire()
				case 2, 3:
					_, _ = src.Delete(testkit.KeyOf(name))
				default:
					src.Apply(testkit.Object(name, strconv.Itoa(n)))
				}
				if random.IntN(10) == 0 {
					testkit.SleepBubble(time.Minute)
				}
			}
			src.Bookmark()
			testkit.SleepBubble(2 * time.Hour)
			want := map[string]string{}
			for _, obj := range src.Objects() {
				want["default/"+obj.Name] = obj.Data["value"]
			}
			if !maps.Equal(sink.now, want) {
				t.Errorf("seed %d: the sink has %v, want %v", seed, sink.now, want)
			}
		})
	}
}

func TestObjectsThatASinkRefusesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, sink := informertest.NewSource(testkit.Object("a", "1"), testkit.Object("b", "1")), newValues(t)
		sink.fail = func(call string) error {
			if strings.HasSuffix(call, "default/b") || strings.HasSuffix(call, " odd") {
				return fmt.Errorf("no: %w", informer.ErrPermanent)
			}
			return nil
		}
		inf := fill(t, src, sink, testkit.Options{})
		testkit.SleepBubble(time.Minute)
		src.Apply(testkit.Object("a", "odd"))
		if _, err := src.Delete(testkit.KeyOf("b")); err != nil {
			t.Fatal(err)
		}
		testkit.SleepBubble(time.Minute)
		if got := inf.Health().Refused; got != 2 || !maps.Equal(sink.now, map[string]string{"default/a": "1", "default/b": "1"}) {
			t.Errorf("%d refused, the sink has %v", got, sink.now)
		}
		sink.fail = nil
		src.Apply(testkit.Object("a", "2"))
		src.Expire()
		src.Disconnect()
		testkit.SleepBubble(5 * time.Minute)
		if !maps.Equal(sink.now, map[string]string{"default/a": "2"}) || inf.Health().Objects != 1 {
			t.Errorf("after the next list, the sink has %v", sink.now)
		}
	})
}

// A list shows what has changed by UIDs and versions, also if these are not what an API server makes.
func TestASinkIsNotGivenTheSameAgain(t *testing.T) {
	const uid = "84c35cac-7d81-4f38-831f-c2a00c93a8d9"
	var list corev1.ConfigMapList
	list.ResourceVersion = "100"
	for n, id := range [][2]string{
		{uid, "1"}, {uid, "007"}, {uid, "18446744073709551615"}, {uid, "18446744073709551616"}, {uid, "old"}, {uid, "+5"}, {strings.ToUpper(uid), "5"}, {"uid", "5"},
		{strings.ReplaceAll(uid, "-", "_"), "5"}, {"00000000-0000-0000-0000-000000000000", "0"}, {strings.Repeat("x", 36), "5"}, {"{" + uid[:35], "5"},
	} {
		obj := testkit.Object(fmt.Sprint("o", n), "1")
		obj.UID, obj.ResourceVersion = types.UID(id[0]), id[1]
		list.Items = append(list.Items, *obj)
	}
	synctest.Test(t, func(t *testing.T) {
		watches := make(chan *watch.FakeWatcher, 10)
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list.DeepCopy(), nil },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				w := watch.NewFake()
				watches <- w
				return w, nil
			},
		}
		sink := newValues(t)
		fill(t, lw, sink, testkit.Options{WatchList: informer.WatchListOff})
		(<-watches).Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
		<-watches
		if got := sink.take(); len(got) != len(list.Items) {
			t.Errorf("%d calls for %d objects: %q", len(got), len(list.Items), got)
		}
	})
}

// 64 bytes in addition to the key's own.
func TestTheInformerOfASinkKeepsLittle(t *testing.T) {
	const objects, keyBytes = 100_000, 16 // "default/o" and a number
	made := func(n int) *corev1.ConfigMap {
		obj := testkit.Small(n, 1)
		obj.UID, obj.ResourceVersion = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", n)), strconv.Itoa(n+1)
		return obj
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1000000"}}
			for n := range objects {
				list.Items = append(list.Items, *made(n))
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	before, _ := lab.Settled()
	inf := fill(t, lw, discard{}, testkit.Options{WatchList: informer.WatchListOff})
	if err := inf.WaitForSync(testkit.Within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	after, _ := lab.Settled()
	if each := (after-before)/objects - keyBytes; each > 64 {
		t.Errorf("%.1f bytes for each object, in addition to its key", each)
	} else {
		t.Logf("%.1f bytes for each object, in addition to its key", each)
	}
}

type discard struct{}

func (discard) Put(context.Context, string, configMap) error    { return nil }
func (discard) Remove(context.Context, string, types.UID) error { return nil }

// trying is a sink that calls the methods of its informer.
type trying struct {
	try func(ctx context.Context)
}

func (s *trying) Put(ctx context.Context, _ string, _ configMap) error { s.try(ctx); return nil }

func (s *trying) Remove(ctx context.Context, _ string, _ types.UID) error { s.try(ctx); return nil }

func TestASinkMayCallItsInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, sink, tried := informertest.NewSource(testkit.Object("a", "1")), &trying{}, 0
		inf, err := informer.NewSink(src, informer.Sink[configMap](sink), testkit.Options{Name: "filled"})
		if err != nil {
			t.Fatal(err)
		}
		sink.try = func(ctx context.Context) {
			tried++
			if err := inf.Run(ctx); !errors.Is(err, informer.ErrAlreadyRun) {
				t.Errorf("Run: %v", err)
			}
			waiting, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			var late *informer.SyncError
			if err := inf.WaitForSync(waiting); tried == 1 && !errors.As(err, &late) || tried > 1 && err != nil {
				t.Errorf("WaitForSync: %v", err)
			}
			select {
			case <-inf.Synced():
			default:
				if tried > 1 {
					t.Error("has not synced")
				}
			}
			if inf.Name() != "filled" || inf.Health().Name != "filled" || inf.MemberHealth().Live() != nil || tried == 1 && inf.ResourceVersion() != "" {
				t.Errorf("%q, %+v", inf.ResourceVersion(), inf.Health())
			}
		}
		var group informer.Group
		if err := group.Add(inf); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- group.Run(ctx) }()
		if err := group.WaitForSync(testkit.Within(t, time.Minute)); err != nil {
			t.Error(err)
		}
		if _, err := src.Delete(testkit.KeyOf("a")); err != nil {
			t.Fatal(err)
		}
		testkit.SleepBubble(time.Minute)
		cancel()
		if err := <-ended; err != nil || tried != 2 {
			t.Errorf("%d calls, %v", tried, err)
		}
	})
}

func TestNewSinkNamesInvalidOptions(t *testing.T) {
	src := informertest.NewSource[configMap]()
	var none *values
	for says, try := range map[string]func() error{
		"sink is nil": func() error {
			_, err := informer.NewSink(src, informer.Sink[configMap](nil), testkit.Options{})
			return err
		},
		"source (lw)":  func() error { _, err := informer.NewSink(nil, discard{}, testkit.Options{}); return err },
		"sink is nil ": func() error { return informer.RunSink(t.Context(), src, informer.Sink[configMap](none)) },
		"Options.Store is set": func() error {
			_, err := informer.NewSink(src, discard{}, testkit.Options{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)})
			return err
		},
		"Options.Fields is set": func() error {
			_, err := informer.NewSink(src, discard{}, testkit.Options{Fields: map[string]string{"a": "data.a"}})
			return err
		},
		"Options.DrainTimeout is set": func() error { _, err := informer.NewSink(src, discard{}, testkit.Options{DrainTimeout: 1}); return err },
		"Options.Omit": func() error {
			_, err := informer.NewSink(src, discard{}, testkit.Options{Omit: []string{"x"}})
			return err
		},
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(says)) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}
