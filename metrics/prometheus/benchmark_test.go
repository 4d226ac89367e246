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

// calls are the functions of the Observer of a crowd, by name.
func calls(o *informer.Observer) map[string]func() {
	return map[string]func(){
		"Apply": func() {
			o.Apply(informer.ApplyInfo{Informer: "Pod", Key: "default/web", Type: informer.EventUpdated, Lag: time.Millisecond})
		},
		"Handled": func() {
			o.Handled(informer.HandledInfo{Informer: "Pod", Watcher: "watcher-1", Key: keyOf("web"), Type: informer.EventUpdated, Took: time.Millisecond})
		},
		"Store": func() {
			o.Store(informer.StoreInfo{Informer: "Pod", Op: "update", Key: "default/web", Took: time.Millisecond})
		},
		"List":  func() { o.List(informer.ListInfo{Informer: "Pod", Took: time.Second}) },
		"Watch": func() { o.Watch(informer.WatchInfo{Informer: "Pod", Took: time.Second}) },
	}
}

func BenchmarkObserver(b *testing.B) {
	_, o := crowd(100)
	for name, f := range calls(o) {
		b.Run(name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					f()
				}
			})
		})
	}
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
	for name, f := range calls(o) {
		if f(); testing.AllocsPerRun(1000, f) > 0 { // the first call of an operation makes its series
			t.Errorf("%s allocates", name)
		}
	}
}
