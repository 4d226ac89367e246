package prometheus

import (
	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
)

// result is how a call of reconcile has ended.
type result uint8

const (
	done    result = iota
	again          // without an error, and reconcile has asked for another call
	retry          // with an error, and another attempt follows
	gaveUp         // with an error, and only an event leads to another attempt
	results        // number of results
)

func (r result) String() string {
	return [results]string{done: "success", again: "again", retry: "error", gaveUp: "gaveup"}[r]
}

func resultOf(info *informer.ReconciledInfo) result {
	switch {
	case info.Err != nil && info.GaveUp:
		return gaveUp
	case info.Err != nil:
		return retry
	case info.Again:
		return again
	}
	return done
}

// queueSeries are the series of a controller.
type queueSeries struct {
	entry
	took    prom.Observer
	results [results]prom.Counter
}

func (s *series) reconciled(info informer.ReconciledInfo) {
	q := s.queue(info.Controller)
	q.took.Observe(info.Took.Seconds())
	q.results[resultOf(&info)].Inc()
}

// queue returns the series of a controller. It makes them the first time.
func (s *series) queue(name string) (q *queueSeries) {
	s.mu.RLock()
	q = s.queues[name]
	s.mu.RUnlock()
	if q == nil {
		s.grow(func() { q = s.queueLocked(label(name)) })
	}
	return q
}

func (s *series) queueLocked(name string) *queueSeries {
	if q := s.queues[name]; q != nil {
		return q
	}
	q := &queueSeries{entry: s.entryLocked()}
	q.took = q.histogram(s.vectors.reconciling, name)
	for r := range results {
		q.results[r] = q.counter(s.vectors.reconciles, name, r.String())
	}
	s.queues[name] = q
	return q
}
