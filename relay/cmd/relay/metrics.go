package main

import (
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

// metrics are those of the informers, beside k8s.io/apiserver's own, and the limit that the alert in
// alerts.yaml compares the informers' last contact with.
type metrics struct {
	informers *prometheus.Metrics
	health    func() map[string]informer.Health // of the relay; nil before it is made
}

func newMetrics() *metrics {
	m := &metrics{}
	m.informers = prometheus.New(func() map[string]informer.Health {
		if m.health == nil {
			return nil
		}
		return m.health()
	})
	return m
}

// serve has /metrics show the metrics. It is called once in a process, when health is set.
func (m *metrics) serve(maxStaleness time.Duration) {
	limit := prom.NewGauge(prom.GaugeOpts{
		Name: "relay_max_staleness_seconds",
		Help: "How long the API server may be silent before the relay is not ready.",
	})
	limit.Set(maxStaleness.Seconds())
	legacyregistry.RawMustRegister(m.informers, limit)
}
