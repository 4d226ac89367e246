package extremes_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var informerTrials = map[string]extremes.Trial{
	"informer.Options.Queue":               extremes.Field("max -1 min", nil, inBubble(runs)),
	"informer.Options.WatchList":           extremes.Field("max -1 min", nil, inBubble(runs)),
	"informer.Options.Intake":              extremes.Field("max -1 min", nil, inBubble(runs)),
	"informer.Options.Decode":              extremes.Field("max -1 min", nil, inBubble(runs)),
	"informer.Options.PageSize":            extremes.Field("", backingOff, inBubble(runs)),
	"informer.Options.DrainTimeout":        extremes.Field("-1 min", nil, inBubble(runs)),
	"informer.Options.Backoff.Duration":    extremes.Field("0 -1 min", backingOff, inBubble(runs)),
	"informer.Options.Backoff.Cap":         extremes.Field("-1 min", backingOff, inBubble(runs)),
	"informer.Options.Backoff.Steps":       extremes.Field("-1 min", backingOff, inBubble(runs)),
	"informer.Options.Backoff.Factor":      extremes.Field("max -1 min inf -inf nan", backingOff, inBubble(runs)),
	"informer.Options.Backoff.Jitter":      extremes.Field("max -1 min inf -inf nan", backingOff, inBubble(runs)),
	"informer.WatcherOptions.MaxBacklog":   extremes.Field("", nil, inBubble(watches)),
	"informer.WatcherOptions.Workers":      extremes.Field("max -1 min", nil, inBubble(watches)),
	"informer.WatcherOptions.ResyncPeriod": extremes.Field("-1 min", nil, inBubble(watches)),
	"informer.ClusterOptions.SyncWait": number(func(t *testing.T, wait time.Duration) error {
		_, err := overCluster(t, informer.ClusterOptions{SyncWait: wait})
		return err
	}),
	"informer.Clusters.Disengage(leave)": extremes.Number("max 0", inBubble(func(t *testing.T, leave informer.Leave) error {
		inf, err := overCluster(t, informer.ClusterOptions{})
		if err != nil {
			return err
		}
		_, err = inf.Disengage("east", leave)
		return err
	})),
	"informer.Clusters.DisengageStored(leave)": extremes.Number("max 0", inBubble(func(t *testing.T, leave informer.Leave) error {
		inf, err := overCluster(t, informer.ClusterOptions{})
		if err != nil {
			return err
		}
		return inf.DisengageStored(leave)
	})),
	"informer.RetryPolicy returns wait": number(retriesAfter),
	"informer.Backoff(base)": backoff("0 -1 min", func(base time.Duration) informer.RetryPolicy {
		return informer.Backoff(base, max(base, time.Minute), 0)
	}),
	"informer.NewListLimit(n)": number(func(t *testing.T, n int) error {
		return runs(t, options{Lists: informer.NewListLimit(n), WatchList: informer.WatchListOff})
	}),
	"informer.Backoff(limit)":    backoff("0 -1 min", func(limit time.Duration) informer.RetryPolicy { return informer.Backoff(time.Second, limit, 0) }),
	"informer.Backoff(attempts)": backoff("-1 min", func(attempts int) informer.RetryPolicy { return informer.Backoff(time.Second, time.Minute, attempts) }),
	"informer.RetryPolicy(failures)": extremes.Number("", func(t *testing.T, failures int) error {
		if wait, again := informer.Backoff(time.Second, time.Minute, 0)(failures, nil); wait < time.Second || wait > 66*time.Second || !again {
			t.Errorf("it waits %v, and tries again: %v", wait, again)
		}
		return nil
	}),
	"informer.Options.TweakListOptions(*v1.ListOptions).Limit": number(func(t *testing.T, n int64) error {
		return runs(t, options{TweakListOptions: func(opts *metav1.ListOptions) { opts.Limit = n }, WatchList: informer.WatchListOff})
	}),
	"informer.Options.TweakListOptions(*v1.ListOptions).TimeoutSeconds": number(func(t *testing.T, n int64) error {
		return runs(t, options{TweakListOptions: func(opts *metav1.ListOptions) { opts.TimeoutSeconds = &n }})
	}),

	"informer.ClientGo.NewSharedIndexInformer(resync)": number(func(t *testing.T, resync time.Duration) error {
		return handles(t, true, resync, func(s cache.SharedIndexInformer, h cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
			return s.AddEventHandler(h)
		}, 0)
	}),
	"informer.ClientGo.NewSharedIndexInformer().AddEventHandlerWithResyncPeriod(resyncPeriod)":            handler(true, byPeriod),
	"informer.ClientGo.NewSharedIndexInformer().AddEventHandlerWithOptions(options).ResyncPeriod":         handler(true, byOptions),
	"informer.CustomCacheInformer.SharedIndexInformer().AddEventHandlerWithResyncPeriod(resyncPeriod)":    handler(false, byPeriod),
	"informer.CustomCacheInformer.SharedIndexInformer().AddEventHandlerWithOptions(options).ResyncPeriod": handler(false, byOptions),
}

// backingOff returns options with which an informer lists, with a Backoff in which any other field may be set.
func backingOff() options {
	return options{WatchList: informer.WatchListOff, Backoff: &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Minute}}
}

func runs(t *testing.T, opts options) error { return lives(t, opts, informer.WatcherOptions{}) }

func watches(t *testing.T, opts informer.WatcherOptions) error { return lives(t, options{}, opts) }

// years is longer than the longest pause between requests.
const years = 3 * 365 * 24 * time.Hour

// lives is the life of an informer: an outage at its start, a list, changes, of which many wait for a call, a relist,
// another outage, and a stop during a call. The store and the watcher always get the state of the source.
func lives(t *testing.T, opts options, of informer.WatcherOptions) error {
	src := informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"))
	opts.ErrorHandler = testkit.Ignore
	inf, err := informer.NewFrom(src, opts)
	if err != nil {
		return err
	}
	var slow atomic.Bool
	r := recorder{Hook: func(ctx context.Context, _ event) error {
		if slow.Load() {
			select {
			case <-time.After(hour):
			case <-ctx.Done():
			}
		}
		return nil
	}}
	if _, err := inf.AddWatcher(&r, of); err != nil {
		return err
	}
	check := func(after string) {
		t.Helper()
		if err := inf.WaitForVersion(testkit.Within(t, years), "", src.ResourceVersion()); err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
		testkit.SleepBubble(time.Minute)
		testkit.CheckView(t, &r, src)
		testkit.CheckStore(t, inf, src)
	}
	testkit.Unreachable(src)
	stop := testkit.Start(t, inf)
	testkit.SleepBubble(hour)
	src.Heal()
	check("an outage at the start")
	slow.Store(true)
	for n := range 600 { // more than one chunk of the log
		src.Apply(object("a", fmt.Sprint(n)))
		synctest.Wait()
	}
	slow.Store(false)
	testkit.SleepBubble(2 * hour)
	check("many changes")
	src.SetFaults(informertest.Faults{Mute: true})
	src.Apply(object("b", "2"))
	_, err = src.Delete(testkit.KeyOf("c"))
	testkit.NoError(t, err)
	src.Expire()
	src.SetFaults(informertest.Faults{})
	check("a relist")
	before := len(src.Requests())
	testkit.Unreachable(src)
	testkit.SleepBubble(hour)
	testkit.AtMost(t, "requests in an hour", len(src.Requests())-before, 10_000)
	src.Heal()
	src.Apply(object("a", "last"))
	check("another outage")
	slow.Store(true)
	src.Apply(object("b", "slow"))
	synctest.Wait()
	testkit.Equal(t, "the stop took", testkit.Took(stop), min(hour, opts.DrainTimeout))
	return nil
}

// backoff returns a trial of an argument of informer.Backoff.
func backoff[N any](refused string, policy func(N) informer.RetryPolicy) extremes.Trial {
	return extremes.Number(refused, inBubble(func(t *testing.T, n N) (err error) {
		var retry informer.RetryPolicy
		if err := panics(func() { retry = policy(n) }); err != nil {
			return err
		}
		return retries(t, retry)
	}))
}

func retriesAfter(t *testing.T, wait time.Duration) error {
	return retries(t, func(int, error) (time.Duration, bool) { return wait, true })
}

// retries checks that a watcher gets an event that has failed twice again, after its pause, and other events meanwhile.
func retries(t *testing.T, retry informer.RetryPolicy) error {
	src, calls := informertest.NewSource(object("a", "1"), object("b", "1")), map[string]int{}
	inf := testkit.NewInformer(t, src, options{ErrorHandler: testkit.Ignore})
	testkit.AddWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
		calls[e.Key().Name]++
		return testkit.ErrorIf(e.Key().Name == "a" && calls["a"] < 3, errors.New("not yet"))
	}), informer.WatcherOptions{Retry: retry})
	stop := testkit.Start(t, inf)
	testkit.SleepBubble(hour)
	src.Apply(object("b", "2"))
	testkit.SleepBubble(hour)
	stop()
	want := map[string]int{"a": 3, "b": 2}
	if wait, again := retry(1, nil); wait > hour || !again {
		want["a"] = 1
	} else if _, again := retry(2, nil); !again {
		want["a"] = 2
	}
	testkit.Equal(t, "calls", calls, want)
	return nil
}

type addHandler = func(s cache.SharedIndexInformer, h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error)

func byPeriod(s cache.SharedIndexInformer, h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithResyncPeriod(h, period)
}

func byOptions(s cache.SharedIndexInformer, h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &period})
}

func handler(clientGo bool, add addHandler) extremes.Trial {
	return number(func(t *testing.T, period time.Duration) error {
		return handles(t, clientGo, time.Minute, add, period)
	})
}

// handles checks that a handler of client-go gets changes, and no resync.
func handles(t *testing.T, clientGo bool, resync time.Duration, add addHandler, period time.Duration) error {
	src := informertest.NewSource(object("a", "1"))
	s := informer.ClientGo{}.NewSharedIndexInformer(src, &corev1.ConfigMap{}, resync, cache.Indexers{})
	if !clientGo {
		s = testkit.NewInformer(t, src, options{}).SharedIndexInformer()
	}
	var got []string
	handle, err := add(s, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { got = append(got, "added "+obj.(configMap).Data["value"]) },
		UpdateFunc: func(_, obj any) { got = append(got, "updated "+obj.(configMap).Data["value"]) },
	}, period)
	if err != nil {
		return err
	}
	stop := testkit.StartShared(t, s)
	for n := range 3 {
		testkit.SleepBubble(hour)
		src.Apply(object("a", fmt.Sprint(n)))
	}
	synctest.Wait()
	if !handle.HasSynced() || fmt.Sprint(got) != "[added 1 updated 0 updated 1 updated 2]" {
		t.Errorf("has synced: %v, and got %v", handle.HasSynced(), got)
	}
	stop()
	return nil
}

// overCluster runs an informer over one cluster until it has synced.
func overCluster(t *testing.T, opts informer.ClusterOptions) (*informer.Clusters[configMap], error) {
	inf, err := informer.NewOverClusters(options{}, opts)
	if err != nil {
		return nil, err
	}
	testkit.Start(t, inf.CustomCacheInformer)
	if err := inf.Engage("east", informer.ClusterSource{Source: informertest.NewSource(object("a", "1"))}); err != nil {
		return nil, err
	}
	return inf, inf.WaitForSyncIn(testkit.Within(t, hour), "east")
}
