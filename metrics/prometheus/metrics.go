package prometheus

import (
	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
)

// Metrics is a Prometheus collector for a program's informers and other members of a group. At each
// scrape it reads the current state from Health. Its Observer counts what happens in between. [New]
// makes a Metrics, which must not be copied. Its methods may be called from any goroutine.
type Metrics struct {
	health func() map[string]informer.MemberHealth
	series *series
}

// New returns the metrics of the informers, controllers, sets and other members whose Health the
// function health returns. health may be the method Health of an [informer.Group]. The name in the
// series of an informer, a controller or a set of package shards is its Health.Name. For any other
// member, such as a set of package kinds, it is the key in the map that health returns.
//
// Each scrape calls health once. The functions of the Observer also call it, but only after they have
// seen many new informers and watchers. Several goroutines may call health at once. It must not block
// or panic.
//
// New does not block. It panics if health is nil.
func New(health func() map[string]informer.MemberHealth) *Metrics {
	if health == nil {
		panic("informer/metrics/prometheus: the function given to New is nil")
	}
	return &Metrics{health: health, series: newSeries(health)}
}

// Observer returns an Observer for Group.Observer or Options.Observer; [informer.Tee] joins it with
// another. An informer without this Observer has only the metrics that come from Health, like all
// other members. If an informer has the Observer, but the function given to New does not return its
// Health, its counts are lost at each scrape.
//
// All Observers of a Metrics share the same counters, so an informer with two of them is counted
// twice. Observer does not block. The functions of the returned Observer do not block either, and
// allocate only when they see a name for the first time.
func (m *Metrics) Observer() *informer.Observer {
	return &informer.Observer{
		List:    m.series.list,
		Watch:   m.series.watch,
		Store:   m.series.store,
		Apply:   m.series.apply,
		Handled: m.series.handled,
	}
}

// Describe sends the descriptions of all metrics. A registry calls it when m is
// registered. It blocks only while ch does.
func (m *Metrics) Describe(ch chan<- *prom.Desc) {
	describe(ch, informerFigures)
	describe(ch, watcherFigures)
	describe(ch, controllerFigures)
	describe(ch, setFigures)
	describe(ch, memberFigures)
	for _, desc := range []*prom.Desc{storeInfo, clusterUnread, reconciles, reconciling} {
		ch <- desc
	}
	for _, v := range m.series.vectors.all() {
		v.Describe(ch)
	}
}

// Collect removes the series of informers and watchers that are gone, and then sends all metrics. A
// registry calls it at each scrape. It blocks only while ch does, and does not hold up an informer.
func (m *Metrics) Collect(ch chan<- prom.Metric) {
	mark := m.series.mark()
	now := populationOf(m.health())
	m.series.sweep(mark, now)

	for name, all := range now.informers {
		collect(ch, informerFigures, all, name)
		collectStores(ch, all, name)
		collectClusters(ch, all, name)
	}
	for name, all := range now.watchers {
		collect(ch, watcherFigures, all, name.informer, name.watcher)
	}
	for name, all := range now.controllers {
		collect(ch, controllerFigures, all, name)
		collectReconciles(ch, all, name)
	}
	for name, all := range now.sets {
		collect(ch, setFigures, all, name)
	}
	for name, h := range now.members {
		collect(ch, memberFigures, []*informer.MemberHealth{&h}, name)
	}
	for _, metric := range m.series.metrics() {
		ch <- metric
	}
}
