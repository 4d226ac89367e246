package prometheus

import (
	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer/enqueue"
)

var (
	reconciles = prom.NewDesc("informer_reconcile_total", "How many calls of reconcile have returned; a call that returns the error of its ended ctx does not count.",
		[]string{"queue", "outcome"}, nil)
	reconciling = prom.NewDesc("informer_reconcile_duration_seconds", "How long calls of reconcile took.", queueLabels, nil)
)

// collectReconciles sends the metrics of the calls of reconcile, for all controllers with this
// name.
func collectReconciles(ch chan<- prom.Metric, all []*enqueue.Health, name string) {
	var sum enqueue.Health
	for _, h := range all {
		sum.Succeeded, sum.Again, sum.Failed, sum.GaveUp = sum.Succeeded+h.Succeeded, sum.Again+h.Again, sum.Failed+h.Failed, sum.GaveUp+h.GaveUp
		sum.TookSum += h.TookSum
		for n := range h.Took {
			sum.Took[n] += h.Took[n]
		}
	}
	for outcome, n := range map[string]int{
		"success": sum.Succeeded - sum.Again,
		"again":   sum.Again,               // without an error, and reconcile has asked for another call
		"error":   sum.Failed - sum.GaveUp, // another attempt follows
		"gaveup":  sum.GaveUp,              // only an event leads to another attempt
	} {
		ch <- prom.MustNewConstMetric(reconciles, prom.CounterValue, float64(n), name, outcome)
	}
	count, buckets := uint64(0), map[float64]uint64{}
	for n, limit := range queueTimes { // the limits of Took
		count += uint64(sum.Took[n])
		buckets[limit] = count
	}
	count += uint64(sum.Took[len(queueTimes)])
	ch <- prom.MustNewConstHistogram(reconciling, count, sum.TookSum.Seconds(), buckets, name)
}
