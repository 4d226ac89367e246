package prometheus

import (
	prom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// queueTimes are for what waits or takes long, too: 100 µs to 7 min.
var queueTimes = prom.ExponentialBuckets(0.0001, 4, 12)

// Workqueues are the metrics of client-go's workqueues, under the names that Kubernetes'
// own components use: a workqueue.MetricsProvider, and a Prometheus collector. Do not
// use it in a program with controller-runtime, which provides them itself.
//
// Queues of one name share their series. Those of a queue stay when it is shut down:
// nobody says so. It is made by [NewWorkqueues], and must not be copied. Its methods may
// be called from any goroutine, and do not block, but for Describe and Collect.
type Workqueues struct {
	depth, unfinished, longest *prom.GaugeVec
	adds, retries              *prom.CounterVec
	waiting, working           *prom.HistogramVec
}

var (
	_ workqueue.MetricsProvider = (*Workqueues)(nil)
	_ prom.Collector            = (*Workqueues)(nil)
)

// NewWorkqueues returns the metrics of the queues that are made after it was given to
// workqueue.SetProvider, of which only the first call in a program has an effect, and of
// those whose options name it as their MetricsProvider. Queues without a name have none.
func NewWorkqueues() *Workqueues {
	gauges := func(name, help string) *prom.GaugeVec {
		return prom.NewGaugeVec(prom.GaugeOpts{Name: name, Help: help}, []string{"name"})
	}
	return &Workqueues{
		depth:      gauges("workqueue_depth", "How many items wait in the queue."),
		adds:       counters("workqueue_adds_total", "How many items were added to the queue.", "name"),
		waiting:    histograms("workqueue_queue_duration_seconds", "How long items waited in the queue.", queueTimes, "name"),
		working:    histograms("workqueue_work_duration_seconds", "How long it took to process items of the queue.", queueTimes, "name"),
		unfinished: gauges("workqueue_unfinished_work_seconds", "For how long the items that are being processed have been, added up."),
		longest:    gauges("workqueue_longest_running_processor_seconds", "For how long the item that is being processed has been, of several the first."),
		retries:    counters("workqueue_retries_total", "How many items were added to the queue after a delay.", "name"),
	}
}

// NewDepthMetric is called by a queue when it is made.
func (w *Workqueues) NewDepthMetric(name string) workqueue.GaugeMetric {
	return w.depth.WithLabelValues(label(name))
}

// NewAddsMetric is called by a queue when it is made.
func (w *Workqueues) NewAddsMetric(name string) workqueue.CounterMetric {
	return w.adds.WithLabelValues(label(name))
}

// NewLatencyMetric is called by a queue when it is made.
func (w *Workqueues) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return w.waiting.WithLabelValues(label(name))
}

// NewWorkDurationMetric is called by a queue when it is made.
func (w *Workqueues) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return w.working.WithLabelValues(label(name))
}

// NewUnfinishedWorkSecondsMetric is called by a queue when it is made.
func (w *Workqueues) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return w.unfinished.WithLabelValues(label(name))
}

// NewLongestRunningProcessorSecondsMetric is called by a queue when it is made.
func (w *Workqueues) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return w.longest.WithLabelValues(label(name))
}

// NewRetriesMetric is called by a queue when it is made.
func (w *Workqueues) NewRetriesMetric(name string) workqueue.CounterMetric {
	return w.retries.WithLabelValues(label(name))
}

// Describe sends the descriptions of all metrics, as a registry asks for when Workqueues
// are registered. It blocks only while ch does.
func (w *Workqueues) Describe(ch chan<- *prom.Desc) {
	for _, c := range w.all() {
		c.Describe(ch)
	}
}

// Collect sends all metrics, as a registry asks for at each scrape. It blocks only while
// ch does; meanwhile, so does the making of a queue.
func (w *Workqueues) Collect(ch chan<- prom.Metric) {
	for _, c := range w.all() {
		c.Collect(ch)
	}
}

func (w *Workqueues) all() []prom.Collector {
	return []prom.Collector{w.depth, w.adds, w.waiting, w.working, w.unfinished, w.longest, w.retries}
}
