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

// Workqueues are the metrics of client-go's workqueues, under the names that Kubernetes' own
// components use. They are a workqueue.MetricsProvider and a Prometheus collector. Do not use
// them in a program with controller-runtime, which provides these metrics itself.
//
// Queues with the same name share their series. At a scrape, or when a queue is made, series of
// controllers of package enqueue are removed if no controller with their name is left. The series of
// other queues stay, because a queue does not report its shutdown. Workqueues are made by
// [NewWorkqueues], and must not be copied. Their methods may be called from any goroutine. Only
// Describe and Collect can block.
type Workqueues struct {
	depth, unfinished, longest *prom.GaugeVec
	adds, retries              *prom.CounterVec
	waiting, working           *prom.HistogramVec

	mu     sync.Mutex
	queues map[string][]*queues.Queue // by label; one nil stands for all queues that are not of a controller
}

var (
	_ workqueue.MetricsProvider = (*Workqueues)(nil)
	_ prom.Collector            = (*Workqueues)(nil)
)

// NewWorkqueues returns metrics for client-go's workqueues. Give them to
// workqueue.SetProvider: they then cover the queues that are made afterwards. Only the first
// call of SetProvider in a program has an effect. They also cover the queues whose options
// name them as MetricsProvider. Queues without a name have no metrics. NewWorkqueues does not
// block.
func NewWorkqueues() *Workqueues {
	gauges := func(name, help string) *prom.GaugeVec {
		return prom.NewGaugeVec(prom.GaugeOpts{Name: name, Help: help}, []string{"name"})
	}
	return &Workqueues{
		queues:     map[string][]*queues.Queue{},
		depth:      gauges("workqueue_depth", "How many items wait in the queue."),
		adds:       counters("workqueue_adds_total", "How many items were added to the queue.", "name"),
		waiting:    histograms("workqueue_queue_duration_seconds", "How long items waited in the queue.", queueTimes, "name"),
		working:    histograms("workqueue_work_duration_seconds", "How long it took to process items of the queue.", queueTimes, "name"),
		unfinished: gauges("workqueue_unfinished_work_seconds", "How long the items that are being processed have taken so far, added up."),
		longest:    gauges("workqueue_longest_running_processor_seconds", "How long the longest-running of the items that are being processed has taken so far."),
		retries:    counters("workqueue_retries_total", "How many items were added to the queue after a delay.", "name"),
	}
}

// NewDepthMetric makes a metric for a new queue; the queue calls it before the others.
func (w *Workqueues) NewDepthMetric(name string) workqueue.GaugeMetric {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweepLocked()
	l := label(name)
	if q := queues.Making(name); !slices.Contains(w.queues[l], q) {
		w.queues[l] = append(w.queues[l], q)
	}
	return w.depth.WithLabelValues(l)
}

// NewAddsMetric makes a metric for a new queue; the queue calls it.
func (w *Workqueues) NewAddsMetric(name string) workqueue.CounterMetric {
	return w.adds.WithLabelValues(label(name))
}

// NewLatencyMetric makes a metric for a new queue; the queue calls it.
func (w *Workqueues) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return w.waiting.WithLabelValues(label(name))
}

// NewWorkDurationMetric makes a metric for a new queue; the queue calls it.
func (w *Workqueues) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return w.working.WithLabelValues(label(name))
}

// NewUnfinishedWorkSecondsMetric makes a metric for a new queue; the queue calls it.
func (w *Workqueues) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return w.unfinished.WithLabelValues(label(name))
}

// NewLongestRunningProcessorSecondsMetric makes a metric for a new queue; the queue calls it.
func (w *Workqueues) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return w.longest.WithLabelValues(label(name))
}

// NewRetriesMetric makes a metric for a new queue; the queue calls it.
func (w *Workqueues) NewRetriesMetric(name string) workqueue.CounterMetric {
	return w.retries.WithLabelValues(label(name))
}

// Describe sends the descriptions of all metrics. A registry calls it when Workqueues are
// registered. It blocks only while ch does.
func (w *Workqueues) Describe(ch chan<- *prom.Desc) {
	for _, c := range w.all() {
		c.Describe(ch)
	}
}

// Collect sends all metrics. A registry calls it at each scrape. It blocks only while ch does,
// and during that time queues cannot be made.
func (w *Workqueues) Collect(ch chan<- prom.Metric) {
	w.mu.Lock()
	w.sweepLocked()
	w.mu.Unlock()
	for _, c := range w.all() {
		c.Collect(ch)
	}
}

// sweepLocked removes the series of controllers that have ended.
func (w *Workqueues) sweepLocked() {
	for l, all := range w.queues {
		if w.queues[l] = slices.DeleteFunc(all, (*queues.Queue).Over); len(w.queues[l]) == 0 {
			delete(w.queues, l)
			for _, c := range w.all() {
				c.DeleteLabelValues(l)
			}
		}
	}
}

func (w *Workqueues) all() []*prom.MetricVec {
	return []*prom.MetricVec{w.depth.MetricVec, w.adds.MetricVec, w.waiting.MetricVec, w.working.MetricVec, w.unfinished.MetricVec, w.longest.MetricVec, w.retries.MetricVec}
}
