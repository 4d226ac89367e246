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
		Watchers: []informer.WatcherHealth{{WatcherStats: informer.WatcherStats{Name: "w"}}},
	}, enqueue.Health{Name: "q", LastSuccess: now}, shards.Health{Name: "s"}, mirrorHealth{})
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

func TestTheReadmeNamesEachMetricAsItIs(t *testing.T) {
	families, err := registered(full()...).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		have = append(have, fmt.Sprintf("| `%s` | %s | %s | %s |",
			f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp()))
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile("(?m)^\\| `(?:informer|workqueue)_.*\\|$").FindAllString(string(readme), -1)
	slices.Sort(documented)
	slices.Sort(have)
	if diff := cmp.Diff(have, documented); diff != "" {
		t.Errorf("README.md (-existing +documented):\n%s", diff)
	}
}

func TestAllMetricsAreDescribed(t *testing.T) {
	name := regexp.MustCompile(`fqName: "([^"]*)"`)
	described, gathered := map[string]int{}, map[string]int{}
	for _, c := range full() {
		descs := make(chan *prom.Desc, 100)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			described[name.FindStringSubmatch(d.String())[1]]++
		}
	}
	families, err := registered(full()...).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		gathered[f.GetName()]++
	}
	if diff := cmp.Diff(described, gathered); diff != "" || len(described) != 35+17+19+2+7 {
		t.Errorf("%d are described; (-described +gathered):\n%s", len(described), diff)
	}
}

func TestHelpIsOneSentence(t *testing.T) {
	families, err := registered(full()...).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		help := f.GetHelp()
		if !strings.HasSuffix(help, ".") || strings.Contains(help, ". ") || strings.ToUpper(help[:1]) != help[:1] {
			t.Errorf("%s: %s", f.GetName(), help)
		}
	}
}

func TestBucketsReachFarEnough(t *testing.T) {
	families, err := registered(full()...).Gather()
	if err != nil {
		t.Fatal(err)
	}
	short, want := "0.0001…26.2144/10", map[string]string{}
	for _, name := range []string{"informer_event_lag_seconds", "informer_store_duration_seconds", "informer_watcher_handling_seconds"} {
		want[name] = short
	}
	want["informer_list_duration_seconds"] = "0.01…81.92/14"
	want["informer_watch_duration_seconds"] = "1…1024/11"
	want["informer_reconcile_duration_seconds"] = "0.0001…419.43/12"
	want["workqueue_queue_duration_seconds"] = "0.0001…419.43/12"
	want["workqueue_work_duration_seconds"] = "0.0001…419.43/12"
	got := map[string]string{}
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			buckets := h.GetBucket()
			last := len(buckets) - 1
			got[f.GetName()] = fmt.Sprintf("%v…%.6g/%d", buckets[0].GetUpperBound(), buckets[last].GetUpperBound(), len(buckets))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
