package prometheus

import (
	prom "github.com/prometheus/client_golang/prometheus"
)

// Kept returns the number of informers and watchers that have series of the Observer.
func (m *Metrics) Kept() int {
	m.series.mu.RLock()
	defer m.series.mu.RUnlock()
	n := 0
	for _, i := range m.series.informers {
		n += 1 + len(i.watchers)
	}
	return n
}

// KeptSeries returns the number of series of the Observer.
func (m *Metrics) KeptSeries() int { return len(m.series.metrics()) }

// KeptInVectors returns the number of series in the vectors, which must equal KeptSeries.
func (m *Metrics) KeptInVectors() int {
	n := 0
	for _, v := range m.series.vectors.all() {
		metrics := make(chan prom.Metric)
		go func() { v.Collect(metrics); close(metrics) }()
		for range metrics {
			n++
		}
	}
	return n
}

// KeptQueues returns how many names of queues have series, without a sweep.
func KeptQueues(queues prom.Collector) int {
	metrics := make(chan prom.Metric, 1000)
	queues.(*workqueues).retries.Collect(metrics)
	return len(metrics)
}
