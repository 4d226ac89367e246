package prometheus

import (
	"slices"
	"sync"

	prom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer/internal/queues"
)

// queueTimes are histogram buckets for long waits and long work: 100 µs to 7 min.
var queueTimes = prom.ExponentialBuckets(0.0001, 4, 12)

type workqueues struct {
	depth, unfinished, longest *prom.GaugeVec
	adds, retries              *prom.CounterVec
	waiting, working           *prom.HistogramVec

	mu     sync.Mutex
	queues map[string][]*queues.Queue // by label; one nil stands for all queues that are not of a controller
}

// NewWorkqueues returns metrics for client-go's workqueues, with the names that Kubernetes' own
// components use. Do not use it in a program with controller-runtime, which provides these metrics
// itself. NewWorkqueues does not block.
//
// Give the provider to workqueue.SetProvider before queues are made: the metrics then cover all
// later queues. Only the first call of SetProvider in a program has an effect. The metrics also
// cover queues whose options have the provider as MetricsProvider. Queues without a name have no
// metrics.
//
// Register the collector. Queues with the same name share their series. At a scrape, and when a
// queue is made, the collector removes the series of a controller of package enqueue if no
// controller with its name is left. The series of other queues stay, because a queue does not report
// its shutdown. While a registry collects, making a queue may block. Both values may be used from
// any goroutine.
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

// sweepLocked removes the series of names whose queues all belong to controllers that ended.
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
