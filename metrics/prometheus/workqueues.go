package prometheus

import (
	"slices"
	"sync"

	prom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer/internal/queues"
)

// queueTimes are buckets that also fit long waits and long work: 100 µs to 7 min.
var queueTimes = prom.ExponentialBuckets(0.0001, 4, 12)

type workqueues struct {
	depth, unfinished, longest *prom.GaugeVec
	adds, retries              *prom.CounterVec
	waiting, working           *prom.HistogramVec

	mu     sync.Mutex
	queues map[string][]*queues.Queue // by label; one nil stands for all queues that are not of a controller
}

// NewWorkqueues returns metrics for client-go's workqueues, under the names that Kubernetes' own
// components use. Do not use them in a program with controller-runtime, which provides these metrics
// itself. It does not block.
//
// Give the provider to workqueue.SetProvider: the metrics then cover the queues that are made
// afterwards. Only the first call of SetProvider in a program has an effect. They also cover the
// queues whose options name the provider as MetricsProvider. Queues without a name have no metrics.
//
// Register the collector. Queues with the same name share their series. At a scrape, or when a queue
// is made, series of controllers of package enqueue are removed if no controller with their name is
// left. The series of other queues stay, because a queue does not report its shutdown. Queues cannot
// be made while a registry waits in the collector. Both values may be used from any goroutine.
func NewWorkqueues() (workqueue.MetricsProvider, prom.Collector) {
	gauges := func(name, help string) *prom.GaugeVec {
		return prom.NewGaugeVec(prom.GaugeOpts{Name: name, Help: help}, []string{"name"})
	}
	w := &workqueues{
		queues:     map[string][]*queues.Queue{},
		depth:      gauges("workqueue_depth", "How many items wait in the queue."),
		adds:       counters("workqueue_adds_total", "How many items were added to the queue.", "name"),
		waiting:    histograms("workqueue_queue_duration_seconds", "How long items waited in the queue.", queueTimes, "name"),
		working:    histograms("workqueue_work_duration_seconds", "How long it took to process items of the queue.", queueTimes, "name"),
		unfinished: gauges("workqueue_unfinished_work_seconds", "How long the items that are being processed have taken so far, added up."),
		longest:    gauges("workqueue_longest_running_processor_seconds", "How long the longest-running of the items that are being processed has taken so far."),
		retries:    counters("workqueue_retries_total", "How many items were added to the queue after a delay.", "name"),
	}
	return w, w
}

// NewDepthMetric is the first method that a new queue calls.
func (w *workqueues) NewDepthMetric(name string) workqueue.GaugeMetric {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweepLocked()
	l := label(name)
	if q := queues.Making(name); !slices.Contains(w.queues[l], q) {
		w.queues[l] = append(w.queues[l], q)
	}
	return w.depth.WithLabelValues(l)
}

func (w *workqueues) NewAddsMetric(name string) workqueue.CounterMetric {
	return w.adds.WithLabelValues(label(name))
}

func (w *workqueues) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return w.waiting.WithLabelValues(label(name))
}

func (w *workqueues) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return w.working.WithLabelValues(label(name))
}

func (w *workqueues) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return w.unfinished.WithLabelValues(label(name))
}

func (w *workqueues) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return w.longest.WithLabelValues(label(name))
}

func (w *workqueues) NewRetriesMetric(name string) workqueue.CounterMetric {
	return w.retries.WithLabelValues(label(name))
}

func (w *workqueues) Describe(ch chan<- *prom.Desc) {
	for _, c := range w.all() {
		c.Describe(ch)
	}
}

func (w *workqueues) Collect(ch chan<- prom.Metric) {
	w.mu.Lock()
	w.sweepLocked()
	w.mu.Unlock()
	for _, c := range w.all() {
		c.Collect(ch)
	}
}

// sweepLocked removes the series of controllers that have ended.
func (w *workqueues) sweepLocked() {
	for l, all := range w.queues {
		if w.queues[l] = slices.DeleteFunc(all, (*queues.Queue).Over); len(w.queues[l]) == 0 {
			delete(w.queues, l)
			for _, c := range w.all() {
				c.DeleteLabelValues(l)
			}
		}
	}
}

func (w *workqueues) all() []*prom.MetricVec {
	return []*prom.MetricVec{w.depth.MetricVec, w.adds.MetricVec, w.waiting.MetricVec, w.working.MetricVec, w.unfinished.MetricVec, w.longest.MetricVec, w.retries.MetricVec}
}
