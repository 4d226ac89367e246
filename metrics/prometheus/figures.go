package prometheus

import (
	"math"
	"strconv"
	"strings"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/shards"
)

// These are the labels of every metric of an informer, of a watcher, of a controller, of a set of
// package shards, and of another member. A controller is named by its queue, as in the metrics of client-go's workqueues.
var (
	informerLabels = []string{"informer"}
	watcherLabels  = []string{"informer", "watcher"}
	queueLabels    = []string{"queue"}
	setLabels      = []string{"set"}
	memberLabels   = []string{"member"}
)

// figure is a metric that is read from the Health of a member or the stats of a watcher.
type figure[S any] struct {
	desc *prom.Desc
	kind prom.ValueType
	join func(a, b float64) float64 // combines the values of two that have the same name
	of   func(*S) float64           // NaN if the value is not known; combined values are then not known either
}

// These functions combine the values of informers, watchers, controllers or sets with the same name: the sum of
// counts, and the worst of all other values.
var (
	sum      = func(a, b float64) float64 { return a + b }
	least    = math.Min
	greatest = math.Max
)

var informerFigures = []figure[informer.Health]{
	figureOf(informerLabels, "informer_synced", prom.GaugeValue, "Whether the first list is in the store.",
		least, func(h *informer.Health) float64 { return flag(h.Synced) }),
	figureOf(informerLabels, "informer_watching", prom.GaugeValue, "Whether a watch is open.",
		least, func(h *informer.Health) float64 { return flag(h.Watching) }),
	figureOf(informerLabels, "informer_stopped", prom.GaugeValue, "Whether the informer has been stopped but is still a member of its group.",
		greatest, func(h *informer.Health) float64 { return flag(h.Stopped) }),
	figureOf(informerLabels, "informer_last_list_timestamp_seconds", prom.GaugeValue, "When the last list, or stream of the first state, was complete; absent before the first.",
		least, func(h *informer.Health) float64 { return timestamp(h.LastList) }),
	figureOf(informerLabels, "informer_last_contact_timestamp_seconds", prom.GaugeValue, "When the API server last sent anything other than an error; absent if it never has.",
		least, func(h *informer.Health) float64 { return timestamp(h.LastContact) }),
	figureOf(informerLabels, "informer_last_progress_timestamp_seconds", prom.GaugeValue, "When a change, a list or a bookmark last confirmed up to which resourceVersion everything is in the store; absent before the first.",
		least, func(h *informer.Health) float64 { return timestamp(h.LastProgress) }),
	figureOf(informerLabels, "informer_resource_version", prom.GaugeValue, "The resourceVersion up to which everything is in the store; absent if it is not a number.",
		least, func(h *informer.Health) float64 { return version(h.ResourceVersion) }),
	figureOf(informerLabels, "informer_objects", prom.GaugeValue, "How many objects the store has; absent if that is not known.",
		sum, objects),
	figureOf(informerLabels, "informer_memory_bytes", prom.GaugeValue, "About how much memory the objects of the store take, by a sample; 0 if they are not in memory.",
		sum, func(h *informer.Health) float64 { return float64(h.Memory.Objects) }),
	figureOf(informerLabels, "informer_memory_saved_bytes", prom.GaugeValue, "About how much more memory the objects would take without Options.Share.",
		sum, func(h *informer.Health) float64 { return float64(h.Memory.Saved) }),
	figureOf(informerLabels, "informer_list_peak_bytes", prom.GaugeValue, "About how much memory the objects of a list have taken before they were in the store, at the most.",
		sum, func(h *informer.Health) float64 { return float64(h.Memory.ListPeak) }),
	figureOf(informerLabels, "informer_queued_changes", prom.GaugeValue, "How many changes and bookmarks have arrived and are not in the store yet.",
		sum, func(h *informer.Health) float64 { return float64(h.Queued) }),
	figureOf(informerLabels, "informer_source_failures", prom.GaugeValue, "How many times in a row listing or watching has failed; 0 while it works.",
		sum, func(h *informer.Health) float64 { return float64(h.SourceFailures) }),
	figureOf(informerLabels, "informer_source_waiting_seconds", prom.GaugeValue, "How long a request to the API server has had no answer; 0 below 30 s.",
		greatest, func(h *informer.Health) float64 { return h.SourceWaiting.Seconds() }),
	figureOf(informerLabels, "informer_namespaces", prom.GaugeValue, "How many namespaces the informer reads; absent if it reads one source.",
		sum, func(h *informer.Health) float64 {
			return regions(h.Namespaces, func(informer.SourceHealth) bool { return true })
		}),
	figureOf(informerLabels, "informer_namespaces_unread", prom.GaugeValue, "How many of its namespaces have not been listed, or cannot be read now; absent if it reads one source.",
		sum, func(h *informer.Health) float64 { return regions(h.Namespaces, unread) }),
	figureOf(informerLabels, "informer_clusters", prom.GaugeValue, "How many clusters the informer reads; absent if it is not over clusters.",
		sum, func(h *informer.Health) float64 {
			return regions(h.Clusters, func(informer.SourceHealth) bool { return true })
		}),
	figureOf(informerLabels, "informer_clusters_unread", prom.GaugeValue, "How many of its clusters have not been listed, or cannot be read now; absent if it is not over clusters.",
		sum, func(h *informer.Health) float64 { return regions(h.Clusters, unread) }),
	figureOf(informerLabels, "informer_store_failing", prom.GaugeValue, "Whether an operation on the store is failing, or has not returned for more than 10 s.",
		greatest, func(h *informer.Health) float64 { return flag(h.StoreError != nil) }),
	figureOf(informerLabels, "informer_store_busy_seconds", prom.GaugeValue, "How long the current operation on the store has taken so far; 0 if there is none.",
		greatest, func(h *informer.Health) float64 { return h.StoreBusy.Seconds() }),
	figureOf(informerLabels, "informer_refused_changes_total", prom.CounterValue, "How many changes the store has refused for good.",
		sum, func(h *informer.Health) float64 { return float64(h.Refused) }),
	figureOf(informerLabels, "informer_foreign_objects_total", prom.CounterValue, "How many objects and events the source has delivered that belong to other replicas; they were dropped.",
		sum, func(h *informer.Health) float64 { return float64(h.Foreign) }),
	figureOf(informerLabels, "informer_decoded_objects_total", prom.CounterValue, "How many objects were decoded as they arrived, because the configuration of the client has informer.Transport.",
		sum, func(h *informer.Health) float64 { return float64(h.Decoding.Objects) }),
	figureOf(informerLabels, "informer_undivided_answers_total", prom.CounterValue, "How many answers with objects were left to client-go, although the client has a type that informer.Transport supports.",
		sum, func(h *informer.Health) float64 { return float64(h.Decoding.Left) }),
	figureOf(informerLabels, "informer_undecodable_objects", prom.GaugeValue, "How many objects cannot be decoded now; each keeps its last state.",
		sum, func(h *informer.Health) float64 { return float64(h.Undecodable) }),
	figureOf(informerLabels, "informer_tombstones", prom.GaugeValue, "How many deleted objects the store keeps because some watcher has not handled their delete.",
		sum, func(h *informer.Health) float64 { return float64(h.Tombstones) }),
}

var watcherFigures = []figure[informer.WatcherStats]{
	figureOf(watcherLabels, "informer_watcher_synced", prom.GaugeValue, "Whether the watcher was called for all of its initial state.",
		least, func(s *informer.WatcherStats) float64 { return flag(s.Synced) }),
	figureOf(watcherLabels, "informer_watcher_pending", prom.GaugeValue, "How many events wait for the watcher, including the one that it is being called for.",
		sum, func(s *informer.WatcherStats) float64 { return float64(s.Pending) }),
	figureOf(watcherLabels, "informer_watcher_lagging", prom.GaugeValue, "Whether the watcher has fallen behind by more than its MaxBacklog and has not caught up yet.",
		greatest, func(s *informer.WatcherStats) float64 { return flag(s.Lagging) }),
	figureOf(watcherLabels, "informer_watcher_oldest_waiting_seconds", prom.GaugeValue, "How long the oldest event that the watcher has not handled has been waiting; 0 if there is none.",
		greatest, func(s *informer.WatcherStats) float64 { return s.OldestWaiting.Seconds() }),
	figureOf(watcherLabels, "informer_watcher_delivered_total", prom.CounterValue, "How many events the watcher has handled without an error.",
		sum, func(s *informer.WatcherStats) float64 { return float64(s.Delivered) }),
	figureOf(watcherLabels, "informer_watcher_failed_total", prom.CounterValue, "How many events were given up after an error of the watcher.",
		sum, func(s *informer.WatcherStats) float64 { return float64(s.Failed) }),
	figureOf(watcherLabels, "informer_watcher_retried_total", prom.CounterValue, "How many calls of the watcher were retries of a failed one.",
		sum, func(s *informer.WatcherStats) float64 { return float64(s.Retried) }),
	figureOf(watcherLabels, "informer_watcher_merged_total", prom.CounterValue, "How many events were merged with others, or cancelled out by them, while they waited for the watcher.",
		sum, func(s *informer.WatcherStats) float64 { return float64(s.Merged) }),
}

var controllerFigures = []figure[enqueue.Health]{
	figureOf(queueLabels, "informer_reconcile_synced", prom.GaugeValue, "Whether everything that the controller reads has synced.",
		least, func(h *enqueue.Health) float64 { return flag(h.Synced) }),
	figureOf(queueLabels, "informer_reconcile_stopped", prom.GaugeValue, "Whether the controller has been stopped but is still a member of its group.",
		greatest, func(h *enqueue.Health) float64 { return flag(h.Stopped) }),
	figureOf(queueLabels, "informer_reconcile_standby", prom.GaugeValue, "Whether the controller waits for its election.",
		greatest, func(h *enqueue.Health) float64 { return flag(h.Standby) }),
	figureOf(queueLabels, "informer_reconcile_workers", prom.GaugeValue, "How many keys can be reconciled at once.",
		sum, func(h *enqueue.Health) float64 { return float64(h.Workers) }),
	figureOf(queueLabels, "informer_reconcile_busy", prom.GaugeValue, "How many calls of reconcile are under way.",
		sum, func(h *enqueue.Health) float64 { return float64(h.Busy) }),
	figureOf(queueLabels, "informer_reconcile_longest_call_seconds", prom.GaugeValue, "How long the longest call of reconcile that is under way has taken so far; 0 if there is none.",
		greatest, longestCall),
	figureOf(queueLabels, "informer_reconcile_queued", prom.GaugeValue, "How many keys wait for a worker; keys that wait for a retry or for their time do not count.",
		sum, func(h *enqueue.Health) float64 { return float64(h.Queued) }),
	figureOf(queueLabels, "informer_reconcile_waiting", prom.GaugeValue, "How many keys wait for a retry, or for the time for which a call has asked.",
		sum, func(h *enqueue.Health) float64 { return float64(h.Waiting) }),
	figureOf(queueLabels, "informer_reconcile_oldest_queued_seconds", prom.GaugeValue, "How long the oldest of the keys that wait for a worker has been waiting; 0 if there is none.",
		greatest, func(h *enqueue.Health) float64 { return h.OldestQueued.Seconds() }),
	figureOf(queueLabels, "informer_reconcile_failing", prom.GaugeValue, "How many keys have failed and have not succeeded since, including those that were given up.",
		sum, func(h *enqueue.Health) float64 { return float64(h.Failing) }),
	figureOf(queueLabels, "informer_reconcile_longest_failing_seconds", prom.GaugeValue, "For how long the key that has been failing longest has done so, even if it was given up; 0 if there is none.",
		greatest, longestFailing),
	figureOf(queueLabels, "informer_reconcile_last_success_timestamp_seconds", prom.GaugeValue, "When a call of reconcile last returned no error; absent if none has.",
		least, func(h *enqueue.Health) float64 { return timestamp(h.LastSuccess) }),
	figureOf(queueLabels, "informer_reconcile_deletes", prom.GaugeValue, "How many deleted objects wait until each of their keys is reconciled.",
		sum, func(h *enqueue.Health) float64 { return float64(h.Deletes) }),
	figureOf(queueLabels, "informer_reconcile_dropped_total", prom.CounterValue, "How many keys of deleted objects a standby has dropped because there were too many.",
		sum, func(h *enqueue.Health) float64 { return float64(h.Dropped) }),
}

var setFigures = []figure[shards.Health]{
	figureOf(setLabels, "informer_shards_joined", prom.GaugeValue, "Whether this replica has joined the set since it was started.",
		least, func(h *shards.Health) float64 { return flag(h.Synced) }),
	figureOf(setLabels, "informer_shards_stopped", prom.GaugeValue, "Whether the set has been stopped but is still a member of its group.",
		greatest, func(h *shards.Health) float64 { return flag(h.Stopped) }),
	figureOf(setLabels, "informer_shards_session", prom.GaugeValue, "Whether this replica has a session, without which it has no buckets.",
		least, func(h *shards.Health) float64 { return flag(h.Session != "") }),
	figureOf(setLabels, "informer_shards_source_failures", prom.GaugeValue, "How many times in a row listing or watching the Leases of the set has failed; 0 while it works.",
		sum, func(h *shards.Health) float64 { return float64(h.SourceFailures) }),
	figureOf(setLabels, "informer_shards_replicas", prom.GaugeValue, "How many replicas may have buckets, as far as this one sees.",
		least, func(h *shards.Health) float64 { return float64(h.Replicas) }),
	figureOf(setLabels, "informer_shards_buckets", prom.GaugeValue, "How many buckets the set has in all replicas together.",
		greatest, func(h *shards.Health) float64 { return float64(h.Buckets) }),
	figureOf(setLabels, "informer_shards_owned", prom.GaugeValue, "How many buckets this replica has, including those that catch up or drain.",
		sum, func(h *shards.Health) float64 { return float64(h.Owned) }),
	figureOf(setLabels, "informer_shards_catching_up", prom.GaugeValue, "How many buckets of this replica wait until its caches are as new as those of the last holder.",
		sum, func(h *shards.Health) float64 { return float64(h.CatchingUp) }),
	figureOf(setLabels, "informer_shards_catching_up_seconds", prom.GaugeValue, "How long the caches of this replica have been too old for its buckets, or older than those of another replica; 0 if they are not.",
		greatest, func(h *shards.Health) float64 { return h.CatchingUpFor.Seconds() }),
	figureOf(setLabels, "informer_shards_draining", prom.GaugeValue, "How many buckets move to other replicas when their calls have returned.",
		sum, func(h *shards.Health) float64 { return float64(h.Draining) }),
	figureOf(setLabels, "informer_shards_draining_seconds", prom.GaugeValue, "How long the first of the draining buckets has been draining; 0 if there is none.",
		greatest, func(h *shards.Health) float64 { return h.DrainingFor.Seconds() }),
	figureOf(setLabels, "informer_shards_unowned", prom.GaugeValue, "How many buckets of the set no replica has, as far as this one sees.",
		greatest, func(h *shards.Health) float64 { return float64(h.Unowned) }),
	figureOf(setLabels, "informer_shards_unowned_seconds", prom.GaugeValue, "How long the first of the unowned buckets has had no owner; 0 if there is none.",
		greatest, func(h *shards.Health) float64 { return h.UnownedFor.Seconds() }),
	figureOf(setLabels, "informer_shards_unserved", prom.GaugeValue, "How many buckets are with replicas that do not have all controllers of this one.",
		greatest, func(h *shards.Health) float64 { return float64(h.Unserved) }),
	figureOf(setLabels, "informer_shards_unserved_seconds", prom.GaugeValue, "How long there have been such buckets; 0 if there is none.",
		greatest, func(h *shards.Health) float64 { return h.UnservedFor.Seconds() }),
	figureOf(setLabels, "informer_shards_taken_total", prom.CounterValue, "How many buckets this replica has got.",
		sum, func(h *shards.Health) float64 { return float64(h.Taken) }),
	figureOf(setLabels, "informer_shards_released_total", prom.CounterValue, "How many buckets this replica has released.",
		sum, func(h *shards.Health) float64 { return float64(h.Released) }),
	figureOf(setLabels, "informer_shards_lost_sessions_total", prom.CounterValue, "How many sessions of this replica ended because they could not be renewed in time.",
		sum, func(h *shards.Health) float64 { return float64(h.LostSessions) }),
	figureOf(setLabels, "informer_shards_lost_calls", prom.GaugeValue, "How many calls of lost sessions have not returned, while another replica may work on the same keys.",
		sum, func(h *shards.Health) float64 { return float64(h.LostCalls) }),
}

var memberFigures = []figure[informer.MemberHealth]{
	figureOf(memberLabels, "informer_member_ready", prom.GaugeValue, "Whether a member of the group is ready; only of members that are not informers, controllers or sets.",
		least, func(h *informer.MemberHealth) float64 { return flag((*h).Ready() == nil) }),
	figureOf(memberLabels, "informer_member_live", prom.GaugeValue, "Whether a member of the group needs no restart; only of members that are not informers, controllers or sets.",
		least, func(h *informer.MemberHealth) float64 { return flag((*h).Live() == nil) }),
	figureOf(memberLabels, "informer_kinds_parked", prom.GaugeValue, "How many kinds of a set of package kinds are parked; only of such members.",
		sum, func(h *informer.MemberHealth) float64 {
			return parked(*h, func(n int, _ time.Duration) float64 { return float64(n) })
		}),
	figureOf(memberLabels, "informer_kinds_parked_seconds", prom.GaugeValue, "For how long the first of them has been parked; 0 if none is.",
		greatest, func(h *informer.MemberHealth) float64 {
			return parked(*h, func(_ int, longest time.Duration) float64 { return longest.Seconds() })
		}),
}

// parked returns a figure of a set of package kinds, or NaN for another member. It looks for the method Parked
// instead of the type: package kinds imports clients that other programs do not need.
func parked(h informer.MemberHealth, figure func(n int, longest time.Duration) float64) float64 {
	if set, ok := h.(interface{ Parked() (int, time.Duration) }); ok {
		return figure(set.Parked())
	}
	return math.NaN()
}

func figureOf[S any](labels []string, name string, kind prom.ValueType, help string, join func(a, b float64) float64, of func(*S) float64) figure[S] {
	return figure[S]{prom.NewDesc(name, help, labels, nil), kind, join, of}
}

var storeInfo = prom.NewDesc("informer_store_info", "1 for the store of the informer, by its String, which for store/valkey has the writer and its token.",
	[]string{"informer", "store"}, nil)

func collectStores(ch chan<- prom.Metric, all []*informer.Health, name string) {
	sent := map[string]bool{"": true} // a Health that no informer has made may have none
	for _, h := range all {
		if store := label(h.Store); !sent[store] {
			sent[store] = true
			ch <- prom.MustNewConstMetric(storeInfo, prom.GaugeValue, 1, name, store)
		}
	}
}

// longestCall returns how long the longest call takes, in seconds. It is the first of Calls.
func longestCall(h *enqueue.Health) float64 {
	if calls := h.Calls; len(calls) > 0 {
		return calls[0].For.Seconds()
	}
	return 0
}

// longestFailing returns for how long a key has been failing at most, in seconds. It is the first of Failures.
func longestFailing(h *enqueue.Health) float64 {
	if failures := h.Failures; len(failures) > 0 {
		return failures[0].For.Seconds()
	}
	return 0
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return math.NaN()
	}
	return float64(t.Unix()) + float64(t.Nanosecond())/1e9 // UnixNano would overflow in 2262
}

// version returns a resourceVersion as a number. It returns NaN unless rv consists of digits.
func version(rv string) float64 {
	v, err := strconv.ParseFloat(rv, 64)
	if err != nil || strings.Trim(rv, "0123456789") != "" {
		return math.NaN()
	}
	return v
}

func objects(h *informer.Health) float64 {
	if h.Objects < 0 {
		return math.NaN()
	}
	return float64(h.Objects)
}

// regions returns for how many namespaces or clusters of an informer are returns true, or NaN if the informer
// has none.
func regions(all []informer.SourceHealth, are func(informer.SourceHealth) bool) float64 {
	if all == nil {
		return math.NaN()
	}
	n := 0
	for _, one := range all {
		if are(one) {
			n++
		}
	}
	return float64(n)
}

func unread(n informer.SourceHealth) bool {
	return !n.Synced || n.SourceFailures > 0 || n.SourceWaiting > 0
}

func describe[S any](ch chan<- *prom.Desc, figures []figure[S]) {
	for _, f := range figures {
		ch <- f.desc
	}
}

// collect sends the metrics of the informers, watchers, controllers or sets in all, which have the same name.
func collect[S any](ch chan<- prom.Metric, figures []figure[S], all []*S, labels ...string) {
	for _, f := range figures {
		value := f.of(all[0])
		for _, other := range all[1:] {
			value = f.join(value, f.of(other))
		}
		if !math.IsNaN(value) {
			ch <- prom.MustNewConstMetric(f.desc, f.kind, value, labels...)
		}
	}
}

// population holds the informers, watchers, controllers, sets and other members that exist at one moment, by
// their labels.
type population struct {
	informers   map[string][]*informer.Health
	watchers    map[watcherName][]*informer.WatcherStats
	controllers map[string][]*enqueue.Health
	sets        map[string][]*shards.Health
	members     map[string]informer.MemberHealth // of other kinds
}

type watcherName struct{ informer, watcher string }

func populationOf(health map[string]informer.MemberHealth) population {
	p := population{
		informers: map[string][]*informer.Health{}, watchers: map[watcherName][]*informer.WatcherStats{},
		controllers: map[string][]*enqueue.Health{}, sets: map[string][]*shards.Health{}, members: map[string]informer.MemberHealth{},
	}
	for key, is := range health {
		switch h := is.(type) {
		case nil:
		case enqueue.Health:
			p.controllers[label(h.Name)] = append(p.controllers[label(h.Name)], &h)
		case shards.Health:
			p.sets[label(h.Name)] = append(p.sets[label(h.Name)], &h)
		case informer.Health:
			name := label(h.Name)
			p.informers[name] = append(p.informers[name], &h)
			for i := range h.Watchers {
				s := &h.Watchers[i].WatcherStats
				w := watcherName{name, label(s.Name)}
				p.watchers[w] = append(p.watchers[w], s)
			}
		default:
			p.members[label(key)] = h
		}
	}
	return p
}

// label returns a name as the value of a label. A scrape fails if any label is not valid
// UTF-8.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
