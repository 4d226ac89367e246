// Package prometheus provides Prometheus metrics for informers, controllers and sets of package shards: the
// state of each informer, the progress of each watcher, the queue of each controller, the buckets
// (shares of the keys) of each set, and how long everything takes.
//
//	var group informer.Group
//	metrics := informerprometheus.New(group.Health)
//	group.Observer = metrics.Observer() // before members are added
//	prometheus.MustRegister(metrics)    // or metrics.Registry of controller-runtime
//
// That covers every member that the group will have. This package has the same name as
// Prometheus' own: rename one of the two in your import. If your informers are not in a group,
// give [New] a function that calls Health of each informer, and set Options.Observer. If you have
// another Observer, join the two with [informer.Tee].
//
// # The metrics
//
// README.md lists all metrics. Their names begin with informer_, those of watchers with
// informer_watcher_, those of controllers of package enqueue with informer_reconcile_, and those of
// sets of package shards with informer_shards_.
//
// Health provides the gauges, such as informer_synced, informer_last_progress_timestamp_seconds
// and informer_watcher_oldest_waiting_seconds, the counts of the events that watchers got, and
// the metrics of the calls of reconcile. These are read when Prometheus scrapes, and cost nothing
// in between. The Observer counts events, attempts on the store, lists and watches. It also
// measures how long these and the calls of watchers take.
//
// [NewWorkqueues] makes the metrics of client-go's workqueues, for programs without
// controller-runtime.
//
// # Labels
//
// Labels are the names of informers and watchers, as given in Options.Name and
// WatcherOptions.Name, and a few labels with a fixed set of values. The label of a controller is
// "queue" with its enqueue.Options.Name, because client-go's metrics of its workqueue have the
// same name. The label of a set of package shards is "set" with its shards.Options.Name. The
// label of another member is "member". No label comes from an object or a key. Each name makes a
// separate series, so do not put anything into a name that grows with objects or with users.
// Watchers without a name are numbered, as in "WatcherFunc-1". Name the watchers that come and
// go, because otherwise each of them makes new series.
//
// Informers, watchers, controllers or sets with the same name share one series. Their counts are
// added up. Of all other values the worst is shown: the oldest time, the lowest resourceVersion,
// the greatest age, and synced only if all are. If a value is not known for one of them, it is
// not shown. When one of them is removed, the counts fall by its share, which Prometheus takes for a
// restart. Invalid UTF-8 is shown as U+FFFD.
//
// # When series are removed
//
// A stopped informer, controller or set is shown while it is a member of the group. When an
// informer, a watcher or a controller is gone, its series are removed at the next scrape. Even
// without scrapes the number of series stays bounded. If there are series for more than about
// twice as many informers and watchers as exist, the Observer calls Health itself and removes the
// series that are no longer needed. If a call of a removed watcher returns after that, its series
// come back until the next scrape. For series of workqueues, see [NewWorkqueues].
//
// # What it costs
//
// Metrics start no goroutines. An event costs the informer about 30 ns, and so does an attempt on
// the store. A call of a watcher costs 45 ns and two readings of the clock. If several goroutines
// contend, it can be up to three times that. Nothing is allocated. Collecting the metrics of
// 1,000 watchers takes 4 ms. Gathering and encoding them takes several times as long, and does
// not hold up an informer.
package prometheus

// The parts of the package.
//
//   - metrics.go is the collector. figures.go, clusters.go and reconciles.go have the metrics that it reads from Health.
//   - series.go counts and measures what the Observer sees, and removes the series that are no longer needed. vectors.go
//     defines these metrics, and outcome.go the label for the end of a LIST or a watch.
//   - workqueues.go has the metrics of client-go's workqueues.
