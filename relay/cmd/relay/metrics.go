package main

import (
	"sync"
	"sync/atomic"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/metrics/prometheus"
	"github.com/customcacheinformer/informer/relay"
)

// metrics holds the metrics that /metrics shows in addition to k8s.io/apiserver's own: those of the
// informers, and those that the alerts in alerts.yaml need, which are the absent resources and
// the limit for the informers' last contact.
type metrics struct {
	informers *prometheus.Metrics
	limit     prom.Gauge
	relay     atomic.Pointer[relay.Relay] // nil while there is none
}

// served returns the metrics of the process. The first call registers them.
var served = sync.OnceValue(func() *metrics {
	m := &metrics{limit: prom.NewGauge(prom.GaugeOpts{
		Name: "relay_max_staleness_seconds",
		Help: "How long the API server may be silent about a resource before the state counts as old.",
	})}
	m.informers = prometheus.New(func() map[string]informer.MemberHealth {
		if r := m.relay.Load(); r != nil {
			return r.Health()
		}
		return nil
	})
	legacyregistry.RawMustRegister(m.informers, m.limit, m)
	return m
})

func (m *metrics) show(r *relay.Relay, maxStaleness time.Duration) {
	m.limit.Set(maxStaleness.Seconds())
	m.relay.Store(r)
}

var absent = prom.NewDesc("relay_absent", "1 if reads of the resource are answered with 404 or 503.", []string{"informer"}, nil)

func (m *metrics) Describe(all chan<- *prom.Desc) { all <- absent }

func (m *metrics) Collect(all chan<- prom.Metric) {
	r := m.relay.Load()
	if r == nil {
		return
	}
	for name, reason := range r.Absent() {
		value := 0.
		if reason != nil {
			value = 1
		}
		all <- prom.MustNewConstMetric(absent, prom.GaugeValue, value, name)
	}
}
