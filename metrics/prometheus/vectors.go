package prometheus

import (
	"slices"

	prom "github.com/prometheus/client_golang/prometheus"
)

// These are the buckets of the histograms, in seconds.
var (
	shortTimes = prom.ExponentialBuckets(0.0001, 4, 10) // 100 µs to 26 s: events, and calls
	listTimes  = prom.ExponentialBuckets(0.01, 2, 14)   // 10 ms to 82 s
	watchTimes = prom.ExponentialBuckets(1, 2, 11)      // 1 s to 17 min
)

// vectors make the series.
type vectors struct {
	events                    *prom.CounterVec
	lag                       *prom.HistogramVec
	store                     *prom.HistogramVec
	storeErrors, storeRetries *prom.CounterVec
	lists                     *prom.HistogramVec
	listOutcomes              *prom.CounterVec
	watches                   *prom.HistogramVec
	watchOutcomes             *prom.CounterVec
	watchEvents               *prom.CounterVec
	handling                  *prom.HistogramVec
}

func newVectors() vectors {
	return vectors{
		events: counters("informer_events_total", "How many events were delivered to the watchers; an event counts once, however many watchers there are.",
			"informer", "type", "origin"),
		lag: histograms("informer_event_lag_seconds", "How long changes took from their arrival until they were in the store; deletes found by a list are left out, because their time is not known.",
			shortTimes, "informer"),
		store: histograms("informer_store_duration_seconds", "How long attempts at an operation on the store took.",
			shortTimes, "informer", "op"),
		storeErrors: counters("informer_store_errors_total", "How many attempts at an operation on the store have failed.",
			"informer", "op"),
		storeRetries: counters("informer_store_retries_total", "How many attempts at an operation on the store were retries of a failed one.",
			"informer", "op"),
		lists: histograms("informer_list_duration_seconds", "How long LIST requests took; each page of a list is one request.",
			listTimes, "informer"),
		listOutcomes: counters("informer_lists_total", "How many LIST requests were made; each page of a list is one request.",
			"informer", "outcome"),
		watches: histograms("informer_watch_duration_seconds", "How long watches lasted, including those that could not be opened.",
			watchTimes, "informer"),
		watchOutcomes: counters("informer_watches_total", "How many watches have ended, including those that could not be opened.",
			"informer", "outcome"),
		watchEvents: counters("informer_watch_events_total", "How many events watches have delivered, including bookmarks; counted when a watch ends.",
			"informer"),
		handling: histograms("informer_watcher_handling_seconds", "How long calls of the watcher took.",
			shortTimes, watcherLabels...),
	}
}

func counters(name, help string, labels ...string) *prom.CounterVec {
	return prom.NewCounterVec(prom.CounterOpts{Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prom.HistogramVec {
	return prom.NewHistogramVec(prom.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func (v *vectors) all() []prom.Collector {
	return []prom.Collector{
		v.events, v.lag, v.store, v.storeErrors, v.storeRetries, v.lists, v.listOutcomes,
		v.watches, v.watchOutcomes, v.watchEvents, v.handling,
	}
}

// ops are the names of the operations on a store, as in StoreError.Op.
var ops = []string{
	"get", "add", "update", "delete", "list", "bookmark",
	"scan", "apply", "forget", "resume", "tombstones",
}

// opLabel returns the label of an operation: one of ops, or "other".
func opLabel(op string) string {
	if slices.Contains(ops, op) {
		return op
	}
	return "other"
}
