package prometheus

import (
	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
)

// Metrics are the metrics of a program's informers and other members of a group, as a Prometheus collector.
// At each scrape it reads the present state from Health. Its Observer counts what happens in
// between. It is made by [New], and must not be copied. Its methods may be called from any
// goroutine.
type Metrics struct {
	health func() map[string]informer.MemberHealth
	series *series
}

// New returns the metrics of the informers, controllers and sets whose Health the function health
// returns. It may be the method Health of an [informer.Group]. The keys of the returned map are
// ignored: series are named by Health.Name. Only members of other kinds are named by their keys.
//
// health is called once for each scrape, and now and then by the functions of the Observer
// when watchers come and go. It may be called from any goroutine, also several times at once,
// and must neither block nor panic.
//
// New does not block. It panics if health is nil, because that is a mistake in the program.
func New(health func() map[string]informer.MemberHealth) *Metrics {
	if health == nil {
		panic("informer/metrics/prometheus: the function given to New is nil")
	}
	return &Metrics{health: health, series: newSeries(health)}
}

// Observer returns an Observer for Group.Observer or Options.Observer; [informer.Tee] joins it
// with another. An informer without it has only the metrics that come from Health; other members have no
// others. If an informer has it, but is missing from the result of the function given to New,
// its counts are lost at each scrape.
//
// All Observers that a Metrics returns feed the same counters, so an informer that is given
// two of them is counted twice. Observer does not block. The functions of the Observer do not
// block either, and allocate only when they see a name for the first time.
func (m *Metrics) Observer() *informer.Observer {
	return &informer.Observer{
		List:    m.series.list,
		Watch:   m.series.watch,
		Store:   m.series.store,
		Apply:   m.series.apply,
		Handled: m.series.handled,
	}
}

// Describe sends the descriptions of all metrics. A registry calls it when Metrics are
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

// Collect removes the series of informers and watchers that are gone, and then
// sends all metrics. A registry calls it at each scrape. It blocks only while ch does, and holds up no
// informer meanwhile.
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
