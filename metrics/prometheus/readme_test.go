package prometheus_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/metrics/prometheus"
	"github.com/customcacheinformer/informer/shards"
)

// full returns all collectors, with at least one series of each metric.
func full() []prom.Collector {
	now := time.Unix(1, 0)
	m := fixed(informer.Health{
		Name: "i", Store: "in memory", LastList: now, LastContact: now, LastProgress: now, ResourceVersion: "1",
		Namespaces: []informer.SourceHealth{}, Clusters: []informer.SourceHealth{{Cluster: "east"}},
		Watchers: []informer.WatcherHealth{{WatcherStats: informer.WatcherStats{Name: "w"}}},
	}, enqueue.Health{Name: "q", LastSuccess: now}, shards.Health{Name: "s"}, mirrorHealth{}, parkedSet{})
	o := m.Observer()
	o.Handled(informer.HandledInfo{Informer: "i", Watcher: "w"})
	o.Store(informer.StoreInfo{Informer: "i", Op: "get"})
	provider, w := prometheus.NewWorkqueues()
	provider.NewDepthMetric("q")
	provider.NewAddsMetric("q")
	provider.NewLatencyMetric("q")
	provider.NewWorkDurationMetric("q")
	provider.NewUnfinishedWorkSecondsMetric("q")
	provider.NewLongestRunningProcessorSecondsMetric("q")
	provider.NewRetriesMetric("q")
	return []prom.Collector{m, w}
}

// Each metric is described to the registry, in one sentence, and in README.md, and its buckets reach far enough.
func TestEachMetricIsDescribedAsItIs(t *testing.T) {
	families, err := registered(full()...).Gather()
	must(t, err)
	var have []string
	described, has := map[string]int{}, map[string]int{}
	buckets := map[string]string{}
	for _, f := range families {
		has[f.GetName()]++
		help := f.GetHelp()
		if !strings.HasSuffix(help, ".") || strings.Contains(help, ". ") || strings.ToUpper(help[:1]) != help[:1] {
			t.Errorf("the help of %s is not one sentence: %s", f.GetName(), help)
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		have = append(have, fmt.Sprintf("| `%s` | %s | %s | %s |", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), help))
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			all := h.GetBucket()
			last := len(all) - 1
			buckets[f.GetName()] = fmt.Sprintf("%v…%.6g/%d", all[0].GetUpperBound(), all[last].GetUpperBound(), len(all))
		}
	}
	readme, err := os.ReadFile("README.md")
	must(t, err)
	documented := regexp.MustCompile("(?m)^\\| `(?:informer|workqueue)_.*\\|$").FindAllString(string(readme), -1)
	slices.Sort(documented)
	slices.Sort(have)
	if diff := cmp.Diff(have, documented); diff != "" {
		t.Errorf("README.md (-existing +documented):\n%s", diff)
	}
	name := regexp.MustCompile(`fqName: "([^"]*)"`)
	for _, c := range full() {
		descs := make(chan *prom.Desc, 200)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			described[name.FindStringSubmatch(d.String())[1]]++
		}
	}
	if diff := cmp.Diff(described, has); diff != "" || len(described) != 42+4+17+19+4+7 {
		t.Errorf("%d are described; (-described +gathered):\n%s", len(described), diff)
	}
	const short, long = "0.0001…26.2144/10", "0.0001…419.43/12"
	if diff := cmp.Diff(map[string]string{
		"informer_event_lag_seconds": short, "informer_store_duration_seconds": short, "informer_watcher_handling_seconds": short,
		"informer_list_duration_seconds": "0.01…81.92/14", "informer_watch_duration_seconds": "1…1024/11",
		"informer_reconcile_duration_seconds": long, "workqueue_queue_duration_seconds": long, "workqueue_work_duration_seconds": long,
	}, buckets); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
}
