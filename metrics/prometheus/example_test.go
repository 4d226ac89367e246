package prometheus_test

import (
	"context"
	"fmt"
	"strings"

	prom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

// A group of informers has metrics. A program serves the registry with promhttp.HandlerFor. Or
// it registers the metrics with prometheus.MustRegister or with controller-runtime's
// metrics.Registry, whose metrics are served already.
func ExampleNew() {
	var group informer.Group
	metrics := prometheus.New(group.Health)
	group.Observer = metrics.Observer() // before members are added
	registry := prom.NewRegistry()
	registry.MustRegister(metrics)

	source := informertest.NewSource(object("web", "1"), object("db", "1")) // in a program: informer.ListWatch(client)
	maps, err := informer.NewFrom(source, informer.Options[configMap]{Name: "ConfigMap"})
	if err != nil {
		fmt.Println(err)
		return
	}
	reg, err := maps.AddWatcher(ignore, informer.WatcherOptions{Name: "controller"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := group.Add(maps); err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- group.Run(ctx) }()
	<-reg.Synced()

	show(registry, "informer_synced", "informer_objects", "informer_watcher_delivered_total")
	stop()
	fmt.Println(<-ended)
	// Output:
	// informer_objects ConfigMap 2
	// informer_synced ConfigMap 1
	// informer_watcher_delivered_total ConfigMap controller 2
	// <nil>
}

var provider, workqueues = prometheus.NewWorkqueues()

// This program does not use controller-runtime and has metrics of its workqueues. Its main
// must call SetProvider before it makes the first queue.
func ExampleNewWorkqueues() {
	workqueue.SetProvider(provider)
	registry := prom.NewRegistry()
	registry.MustRegister(workqueues)

	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName](),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "configmap"},
	)
	defer queue.ShutDown()
	queue.Add(keyOf("web"))
	queue.Add(keyOf("db"))
	show(registry, "workqueue_depth")
	for range 2 {
		key, _ := queue.Get()
		queue.Done(key)
	}
	show(registry, "workqueue_depth")
	// Output:
	// workqueue_depth configmap 2
	// workqueue_depth configmap 0
}

// show prints the gauges and counters with the given names.
func show(g prom.Gatherer, names ...string) {
	families, err := g.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, family := range families {
		for _, name := range names {
			if family.GetName() != name {
				continue
			}
			for _, m := range family.GetMetric() {
				line := []string{name}
				for _, l := range m.GetLabel() {
					line = append(line, l.GetValue())
				}
				fmt.Println(strings.Join(line, " "), m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
	}
}
