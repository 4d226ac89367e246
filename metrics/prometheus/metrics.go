package prometheus

import (
	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
)

// Metrics are the metrics of a program's informers, as a Prometheus collector. What is
// true at the moment it asks Health for at each scrape; what happens, its Observer is
// told. It is made by [New], and must not be copied. Its methods may be called from any
// goroutine.
type Metrics struct {
	health func() map[string]informer.Health
	series *series
}

// New returns the metrics of the informers that health returns, such as the method
// Health of an [informer.Group]. The keys of what it returns do not count: series are
// named by Health.Name.
//
// health is called once for each scrape, and now and then by the functions of the
// Observer when watchers come and go. So it may be called from any goroutine, several
// times at once, and must neither block nor panic.
//
// New panics if health is nil, because that is a mistake in the program.
func New(health func() map[string]informer.Health) *Metrics {
	if health == nil {
		panic("informer/metrics/prometheus: New was given no function")
	}
	return &Metrics{health: health, series: newSeries(health)}
}

// Observer returns the Observer that has to be told what the informers do, as
// Group.Observer or Options.Observer; [informer.Tee] joins it with another. An informer
// that is not given it has the metrics that come from Health, and no others. One that
// is given it, and that the function given to New does not return, loses at each scrape
// what was counted for it.
//
// All that Observer returns is for the same Metrics: an informer that is given it twice
// is counted twice. It does not block; neither do the
// functions of the Observer, nor do they allocate, but for the first time that a name
// is seen.
func (m *Metrics) Observer() *informer.Observer {
	return &informer.Observer{
		List:    m.series.list,
		Watch:   m.series.watch,
		Store:   m.series.store,
		Apply:   m.series.apply,
		Handled: m.series.handled,
	}
}

// Describe sends the descriptions of all metrics, as a registry asks for when Metrics
// are registered. It blocks only while ch does.
func (m *Metrics) Describe(ch chan<- *prom.Desc) {
	for _, f := range informerFigures {
		ch <- f.desc
	}
	for _, f := range watcherFigures {
		ch <- f.desc
	}
	for _, v := range m.series.vectors.all() {
		v.Describe(ch)
	}
}

// Collect sends all metrics, as a registry asks for at each scrape, after it has
// forgotten the series of informers and watchers that are gone. It blocks only while ch
// does, and holds up no informer meanwhile.
func (m *Metrics) Collect(ch chan<- prom.Metric) {
	mark := m.series.mark()
	now := populationOf(m.health())
	m.series.sweep(mark, now)

	for name, all := range now.informers {
		collect(ch, informerFigures, all, name)
	}
	for name, all := range now.watchers {
		collect(ch, watcherFigures, all, name.informer, name.watcher)
	}
	for _, metric := range m.series.metrics() {
		ch <- metric
	}
}
