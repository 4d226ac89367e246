package prometheus_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/queues"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

func TestWorkqueuesHaveTheMetricsOfKubernetes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, w := prometheus.NewWorkqueues()
		registry := registered(w)
		queue := workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Second),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "q\xff", MetricsProvider: provider})
		check := func(want values) {
			t.Helper()
			all := values{}
			for name, value := range want {
				all["workqueue_"+name+"{name=\"q\uFFFD\"}"] = value
			}
			of(t, scrape(t, registry), "", all)
		}
		want := values{
			"depth": 0, "adds_total": 0, "retries_total": 0, "unfinished_work_seconds": 0, "longest_running_processor_seconds": 0,
			"queue_duration_seconds_count": 0, "queue_duration_seconds_sum": 0, "work_duration_seconds_count": 0, "work_duration_seconds_sum": 0,
		}
		check(want)

		queue.Add("a")
		queue.Add("b")
		queue.Add("a")
		want["depth"], want["adds_total"] = 2, 2
		check(want)

		time.Sleep(3 * time.Second)
		item, _ := queue.Get()
		time.Sleep(2 * time.Second)
		other, _ := queue.Get()
		sleepBubble(time.Second)
		want["depth"] = 0
		want["queue_duration_seconds_count"], want["queue_duration_seconds_sum"] = 2, 3+5
		want["unfinished_work_seconds"], want["longest_running_processor_seconds"] = 3+1, 3
		check(want)

		queue.Done(item)
		queue.Done(other)
		queue.AddRateLimited(item)
		sleepBubble(500 * time.Millisecond)
		want["unfinished_work_seconds"], want["longest_running_processor_seconds"], want["retries_total"] = 0, 0, 1
		want["work_duration_seconds_count"], want["work_duration_seconds_sum"] = 2, 3+1
		check(want)

		second := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "q\xff", MetricsProvider: provider})
		second.Add("a") // shares the series
		want["depth"], want["adds_total"] = 1, 3
		check(want)
		queue.ShutDown()
		second.ShutDown()
		time.Sleep(time.Minute) // the queue's timers end in this time
	})
}

// The test has a process of its own, because only the first provider of a process gets the queues of
// controllers, and an example sets one, too.
func TestTheSeriesOfAControllerGoWithIt(t *testing.T) {
	if os.Getenv("WORKQUEUES") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(cmd.Environ(), "WORKQUEUES=provided")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	bubble(t, []configMap{object("a", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		provider, w := prometheus.NewWorkqueues()
		workqueue.SetProvider(provider)
		registry, inf := registered(w), r.add(src, options{})
		run := func(name string) (stop func()) {
			c, err := enqueue.NewController(func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil },
				enqueue.Options{Name: name}, enqueue.For(inf))
			must(t, err)
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			sleepBubble(time.Second)
			return func() {
				t.Helper()
				cancel()
				noError(t, <-ended)
				c.Removed()
			}
		}
		adds := func(want float64) {
			t.Helper()
			all := scrape(t, registry)
			if got, there := all[`workqueue_adds_total{name="q"}`]; got != want || there != (want > 0) || want == 0 && len(all) > 0 {
				t.Errorf("want %v keys added, there is %v", want, all)
			}
		}
		first, second := run("q"), run("q")
		adds(2)
		first()
		adds(2) // the series are those of the second, too
		second()
		adds(0)
		third := run("q")
		adds(1)
		third()
		fourth := run("q") // without a scrape since the end of the third
		adds(1)
		fourth()
		for n := range 50 {
			run(fmt.Sprint("tenant ", n))()
		}
		if kept := prometheus.KeptQueues(w); kept != 1 {
			t.Errorf("without a scrape, %d names have series", kept)
		}
		adds(0)
		group := newRig(t)
		group.control(group.add(src, options{}), enqueue.Options{Name: "q"})
		sleepBubble(time.Second)
		adds(1)
		group.stop() // the controller stays a member
		adds(0)
		sleepBubble(time.Minute) // the queues' timers end in this time
	})
}

func TestTheSeriesOfOtherQueuesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, w := prometheus.NewWorkqueues()
		registry := registered(w)
		own := func(name string) *workqueue.Typed[string] {
			q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: name, MetricsProvider: provider})
			q.Add("a")
			return q
		}
		controlled := func(name string) func() {
			q, end := queues.Make(name, func() *workqueue.Typed[string] { return own(name) })
			return func() { q.ShutDown(); end() }
		}
		all := []*workqueue.Typed[string]{own("before")}
		before, during, after, alone := controlled("before"), controlled("during"), controlled("after"), controlled("alone")
		all = append(all, own("during"))
		before()
		during()
		after()
		alone()
		all = append(all, own("after"), own("never"))
		again := controlled("never")
		scrape(t, registry)
		again()
		for _, q := range all {
			q.Add("b")
		}
		for range 2 {
			of(t, scrape(t, registry), "adds_total", values{
				`workqueue_adds_total{name="before"}`: 3, `workqueue_adds_total{name="during"}`: 3, `workqueue_adds_total{name="after"}`: 2, `workqueue_adds_total{name="never"}`: 3,
			})
			for _, q := range all {
				q.ShutDown() // without notice
			}
		}
		time.Sleep(time.Minute) // the queues' timers end in this time
	})
}

func TestScrapesWhileControllersComeAndGo(t *testing.T) {
	provider, w := prometheus.NewWorkqueues()
	registry := registered(w)
	stop := scraping(t, registry)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for k := range 20 {
				name := fmt.Sprint("q", n, k%2)
				adds, end := queues.Make(name, func() workqueue.CounterMetric { provider.NewDepthMetric(name); return provider.NewAddsMetric(name) })
				shared, endShared := queues.Make("shared", func() workqueue.CounterMetric {
					provider.NewDepthMetric("shared")
					return provider.NewAddsMetric("shared")
				})
				adds.Inc()
				shared.Inc()
				got := scrape(t, registry)
				if of := fmt.Sprintf("workqueue_adds_total{name=%q}", name); got[of] != 1 || got[`workqueue_adds_total{name="shared"}`] < 1 {
					t.Errorf("of queues in use there is %v", got)
				}
				endShared()
				end()
			}
		})
	}
	all.Wait()
	stop()
	if left := scrape(t, registry); len(left) > 0 {
		t.Errorf("when all controllers have ended, there are %v", left)
	}
}
