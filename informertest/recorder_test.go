package informertest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

type podEvent = informer.Event[*corev1.Pod]

func namedPod(name, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}}
}

func TestARecorderFindsContradictions(t *testing.T) {
	v1, v2, v3 := namedPod("a", "1"), namedPod("a", "2"), namedPod("a", "3")
	added := func(obj *corev1.Pod) podEvent { return podEvent{Type: informer.EventAdded, New: obj} }
	updated := func(from, to *corev1.Pod) podEvent {
		return podEvent{Type: informer.EventUpdated, Old: from, New: to}
	}
	deleted := func(obj *corev1.Pod) podEvent { return podEvent{Type: informer.EventDeleted, Old: obj} }
	for says, events := range map[string][]podEvent{
		"":                 {added(v1), updated(v1, v2), updated(v2, v3), deleted(v3), added(v1)},
		"there already":    {added(v1), added(v2)},
		"was not there":    {updated(v1, v2)},
		"not there":        {added(v1), deleted(v1), deleted(v1)},
		"not the New":      {added(v1), updated(v2, v3)},
		"has no Old":       {added(v1), updated(nil, v2)},
		"has an Old":       {{Type: informer.EventAdded, Old: v1, New: v2}},
		"has a New":        {added(v1), {Type: informer.EventDeleted, Old: v1, New: v1}},
		"passed to the me": {{Type: 9, New: v1}},
	} {
		testContradiction(t, says, events, nil)
	}

	// An event whose Hook has failed counts as handled, or comes again.
	fails := func(context.Context, podEvent) error { return errors.New("mine") }
	for says, events := range map[string][]podEvent{
		"": {
			added(v1), added(v1), added(v2), updated(v2, v3), updated(v2, v3), deleted(v3), deleted(v3), added(v1), added(v1),
			deleted(v2), added(v3), updated(v3, v1), updated(v1, v2), deleted(v1),
		},
		"there already": {added(v1), updated(v1, v2), added(v2)},
		"was not there": {updated(v1, v2)},
		"not the New":   {added(v1), updated(v1, v2), updated(v3, v1)},
		"has no Old":    {added(v1), updated(v1, v2), updated(nil, v3)},
		"has an Old":    {added(v1), {Type: informer.EventAdded, Old: v1, New: v2}},
		"has a New":     {added(v1), updated(v1, v2), {Type: informer.EventDeleted, Old: v2, New: v1}},
	} {
		testContradiction(t, says, events, fails)
	}
}

// testContradiction checks that a Recorder with that Hook finds that fault in events.
func testContradiction(t *testing.T, says string, events []podEvent, hook func(context.Context, podEvent) error) {
	t.Helper()
	r := informertest.Recorder[*corev1.Pod]{Hook: hook}
	for _, e := range events {
		switch e.Type {
		case informer.EventUpdated:
			_ = r.Update(t.Context(), e)
		case informer.EventDeleted:
			_ = r.Delete(t.Context(), e)
		default:
			_ = r.Add(t.Context(), e)
		}
	}
	if err := r.Err(); (says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("found %v, want %q", err, says)
	}
}

type failing struct {
	testing.TB
	ctx    context.Context
	failed string
}

func (f *failing) Helper()                           {}
func (f *failing) Context() context.Context          { return f.ctx }
func (f *failing) Fatalf(format string, args ...any) { f.failed += fmt.Sprintf(format, args...) }
func (f *failing) Errorf(format string, args ...any) { f.failed += fmt.Sprintf(format, args...) }

func TestExpectComparesTheEventsOfEachObjectInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			want []string
			ok   bool
		}{
			{[]string{"added default/a", "deleted default/a", "added default/b"}, true},
			{[]string{"added default/b", "added default/a", "deleted default/a"}, true},
			{[]string{"deleted default/a", "added default/a", "added default/b"}, false},
			{[]string{"added default/a", "deleted default/a"}, false}, // default/b was added first
			{[]string{"added default/a", "deleted default/a", "added default/b", "added default/c"}, false},
		} {
			var r informertest.Recorder[*corev1.Pod]
			_ = r.Add(t.Context(), podEvent{Type: informer.EventAdded, New: namedPod("b", "1")})
			_ = r.Add(t.Context(), podEvent{Type: informer.EventAdded, New: namedPod("a", "1")})
			_ = r.Delete(t.Context(), podEvent{Type: informer.EventDeleted, Old: namedPod("a", "1"), FinalStateUnknown: true})
			f := &failing{ctx: t.Context()}
			r.Expect(f, tc.want...)
			if tc.ok != (f.failed == "") {
				t.Errorf("expecting %q: %s", tc.want, f.failed)
			}
			none := &failing{}
			r.Expect(none)
			if left := len(tc.want) < 3; left != (none.failed != "") {
				t.Errorf("after %q, Expect of nothing reports %q", tc.want, none.failed)
			}
		}
	})
}

// A watcher whose calls fail at times sees every kind of repeated event: alone, merged with newer
// ones, and given up.
func TestARecorderFollowsAWatcherWhoseHookFails(t *testing.T) {
	for name, retry := range map[string]informer.RetryPolicy{
		"without Retry":     nil,
		"with Retry":        informer.Backoff(time.Second, time.Minute, 0),
		"that gives up":     informer.Backoff(time.Second, time.Second, 2),
		"that is impatient": informer.Backoff(time.Millisecond, time.Millisecond, 1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inf, src := informertest.Start(t, podOn("n", "a"), podOn("n", "b"))
				random, luck := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(3, 4))
				var mu sync.Mutex // protects luck, failures and fail
				failures, fail := 0, true
				seen := informertest.Recorder[*corev1.Pod]{Hook: func(context.Context, podEvent) error {
					mu.Lock()
					defer mu.Unlock()
					if fail && luck.IntN(2) == 0 {
						failures++
						return errors.New("mine")
					}
					return nil
				}}
				must(inf.AddWatcher(&seen, informer.WatcherOptions{Retry: retry, Workers: 3, ResyncPeriod: time.Hour}))
				for i := range 500 {
					pod := podOn(fmt.Sprint("n", i), string(rune('a'+random.IntN(4))))
					if random.IntN(3) == 0 {
						_, _ = src.Delete(keyOf(pod.Name)) // it may not exist
					} else {
						src.Apply(pod)
					}
					time.Sleep(time.Duration(random.IntN(3)) * time.Second)
				}
				mu.Lock()
				fail = false
				mu.Unlock()
				time.Sleep(10 * time.Minute)
				if err := seen.Err(); err != nil {
					t.Error(err)
				}
				if failures < 100 {
					t.Errorf("only %d calls have failed", failures)
				}
				wantView(t, src, &seen)
			})
		})
	}
}

func TestAFailedAttemptIsAnEventOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, _ := informertest.Start(t, podOn("n", "a"))
		calls := 0
		seen := informertest.Recorder[*corev1.Pod]{Hook: func(context.Context, podEvent) error {
			if calls++; calls < 3 {
				return errors.New("mine")
			}
			return nil
		}}
		must(inf.AddWatcher(&seen, informer.WatcherOptions{Retry: informer.Backoff(time.Second, time.Minute, 0)}))
		seen.Expect(t, "added default/a", "added default/a", "added default/a")
		synctest.Wait()
		seen.Expect(t)
	})
}

func TestAReaderHoldsTheGivenObjects(t *testing.T) {
	byVersion := informer.Indexers[*corev1.Pod]{"version": func(pod *corev1.Pod) ([]string, error) {
		return []string{pod.ResourceVersion}, nil
	}}
	reader := informertest.NewReader(t, informer.Options[*corev1.Pod]{Indexers: byVersion, Durable: informertest.NewDurable()}, namedPod("a", "1"), namedPod("b", "2"))
	if pods, err := reader.ByIndex("version", "2"); len(pods) != 1 || err != nil {
		t.Errorf("ByIndex: %v, %v", pods, err)
	}
	if _, exists, err := reader.Get(types.NamespacedName{Namespace: "default", Name: "b"}); !exists || err != nil {
		t.Errorf("Get: %v, %v", exists, err)
	}
	if pods, err := reader.List("default", nil); len(pods) != 2 || err != nil {
		t.Errorf("List: %v, %v", pods, err)
	}
}

func TestRunReturnsAFunctionThatStopsAndWaits(t *testing.T) {
	inf := must(informer.NewFrom(informertest.NewSource(configMap("a", "1")), informer.Options[*corev1.ConfigMap]{}))
	reg := must(inf.AddWatcher(&informertest.Recorder[*corev1.ConfigMap]{}, informer.WatcherOptions{}))
	stop := informertest.Run(t, inf)
	stop()
	select {
	case <-reg.Stopped():
	default:
		t.Error("the watcher has not stopped")
	}
	stop() // the end of the test calls stop again
}

func TestARecorderKnowsClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := must(informer.NewOverClusters(informer.Options[*corev1.ConfigMap]{}, informer.ClusterOptions{}))
		sources := map[string]*configMapSource{"east": informertest.NewSource(configMap("a", "1")), "west": informertest.NewSource(configMap("a", "1"))}
		engage := func(name string) {
			if err := over.Engage(name, informer.ClusterSource{Source: sources[name]}); err != nil {
				t.Fatal(err)
			}
		}
		r := &informertest.Recorder[*corev1.ConfigMap]{}
		must(over.AddWatcher(r, informer.WatcherOptions{}))
		informertest.Run(t, over)
		engage("east")
		engage("west")
		r.Expect(t, "added east|default/a", "added west|default/a")
		must(over.Disengage("east", informer.LeaveSilently))
		synctest.Wait()
		engage("east")
		r.Expect(t, "added east|default/a")
		must(over.Disengage("west", informer.LeaveDeleted))
		r.Expect(t, "deleted west|default/a")
		if east, west, one := r.ViewIn("east"), r.ViewIn("west"), r.View(); len(east) != 1 || len(west)+len(one) != 0 {
			t.Errorf("the views are %v, %v and %v", east, west, one)
		}
	})
}
