package prometheus_test

import (
	"fmt"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

// crowd returns the metrics of an informer with the given number of watchers. The Observer has
// already seen a call of each watcher.
func crowd(watchers int) (*prometheus.Metrics, *informer.Observer) {
	h := informer.Health{Name: "Pod", ResourceVersion: "123456"}
	for n := range watchers {
		h.Watchers = append(h.Watchers, informer.WatcherHealth{WatcherStats: informer.WatcherStats{Name: fmt.Sprint("watcher-", n)}})
	}
	m := fixed(h)
	o := m.Observer()
	for _, w := range h.Watchers {
		o.Handled(informer.HandledInfo{Informer: h.Name, Watcher: w.Name})
	}
	return m, o
}

// each benchmarks f serially and in parallel.
func each(b *testing.B, f func()) {
	b.Helper()
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				f()
			}
		})
	})
}

func BenchmarkApply(b *testing.B) {
	_, o := crowd(100)
	info := informer.ApplyInfo{Informer: "Pod", Key: "default/web", Type: informer.EventUpdated, Lag: time.Millisecond}
	each(b, func() { o.Apply(info) })
}

func BenchmarkHandled(b *testing.B) {
	_, o := crowd(100)
	info := informer.HandledInfo{Informer: "Pod", Watcher: "watcher-50", Key: keyOf("web"), Type: informer.EventUpdated, Took: time.Millisecond}
	each(b, func() { o.Handled(info) })
}

func BenchmarkStore(b *testing.B) {
	_, o := crowd(100)
	info := informer.StoreInfo{Informer: "Pod", Op: "update", Key: "default/web", Took: time.Millisecond}
	each(b, func() { o.Store(info) })
}

func BenchmarkCollect(b *testing.B) {
	for _, watchers := range []int{1, 1000} {
		m, _ := crowd(watchers)
		b.Run(fmt.Sprint("watchers=", watchers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				metrics := make(chan prom.Metric, 1000)
				go func() { m.Collect(metrics); close(metrics) }()
				for range metrics {
				}
			}
		})
	}
}

func TestAnEventAllocatesNothing(t *testing.T) {
	_, o := crowd(3)
	for name, f := range map[string]func(){
		"Apply":   func() { o.Apply(informer.ApplyInfo{Informer: "Pod", Type: informer.EventAdded, Lag: time.Second}) },
		"Handled": func() { o.Handled(informer.HandledInfo{Informer: "Pod", Watcher: "watcher-1", Took: time.Second}) },
		"Store":   func() { o.Store(informer.StoreInfo{Informer: "Pod", Op: "get", Took: time.Second}) },
		"List":    func() { o.List(informer.ListInfo{Informer: "Pod", Took: time.Second}) },
		"Watch":   func() { o.Watch(informer.WatchInfo{Informer: "Pod", Took: time.Second}) },
	} {
		if n := testing.AllocsPerRun(1000, f); n > 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
