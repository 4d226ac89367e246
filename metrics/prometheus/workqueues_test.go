package prometheus_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer/metrics/prometheus"
)

func TestWorkqueuesHaveTheMetricsOfKubernetes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prometheus.NewWorkqueues()
		registry := registered(w)
		queue := workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Second),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "q\xff", MetricsProvider: w})
		check := func(want values) {
			t.Helper()
			all := values{}
			for name, value := range want {
				all["workqueue_"+name+"{name=\"q\uFFFD\"}"] = value
			}
			if diff := cmp.Diff(all, scrape(t, registry)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
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
		time.Sleep(time.Second)
		synctest.Wait()
		want["depth"] = 0
		want["queue_duration_seconds_count"], want["queue_duration_seconds_sum"] = 2, 3+5
		want["unfinished_work_seconds"], want["longest_running_processor_seconds"] = 3+1, 3
		check(want)

		queue.Done(item)
		queue.Done(other)
		queue.AddRateLimited(item)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		want["unfinished_work_seconds"], want["longest_running_processor_seconds"], want["retries_total"] = 0, 0, 1
		want["work_duration_seconds_count"], want["work_duration_seconds_sum"] = 2, 3+1
		check(want)

		queue.ShutDown()
		time.Sleep(time.Minute) // the queue's timers end in this time
	})
}

func TestQueuesOfOneNameAreOneSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prometheus.NewWorkqueues()
		for range 2 {
			queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "q", MetricsProvider: w})
			queue.Add("a")
			queue.ShutDown()
		}
		if got := scrape(t, registered(w))[`workqueue_adds_total{name="q"}`]; got != 2 {
			t.Errorf("%v items were added", got)
		}
		time.Sleep(time.Minute) // the queues' timers end in this time
	})
}
