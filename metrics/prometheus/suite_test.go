package prometheus_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	prom "github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

type (
	configMap = *corev1.ConfigMap
	event     = informer.Event[configMap]
	ci        = informer.CustomCacheInformer[configMap]
	options   = informer.Options[configMap]
	watchOpts = informer.WatcherOptions
	watcher   = informer.WatcherFunc[configMap]
)

type values = map[string]float64

// ignore is a watcher that does nothing.
var ignore = watcher(func(context.Context, event) error { return nil })

func object(name, value string) configMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"value": value}}
}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// rig is a group of informers with metrics.
type rig struct {
	t        *testing.T
	mu       sync.Mutex // protects what calls of reconcile count
	group    *informer.Group
	metrics  *prometheus.Metrics
	registry *prom.Registry
	stop     func() // ends the group's Run and waits for it
}

// newRig returns a group that runs until the end of the test. Errors of its informers do not
// fail the test.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, group: &informer.Group{ErrorHandler: func(context.Context, error) {}}, registry: prom.NewPedanticRegistry()}
	r.metrics = prometheus.New(r.group.Health)
	r.group.Observer = r.metrics.Observer()
	r.registry.MustRegister(r.metrics)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.group.Run(ctx) }()
	r.stop = func() {
		if cancel(); done == nil {
			return
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		done = nil
	}
	t.Cleanup(r.stop)
	return r
}

// add adds an informer to the group. Its name is "i" unless opts have another.
func (r *rig) add(lw cache.ListerWatcher, opts options) *ci {
	r.t.Helper()
	if opts.Name == "" {
		opts.Name = "i"
	}
	inf, err := informer.NewFrom(lw, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.group.Add(inf); err != nil {
		r.t.Fatal(err)
	}
	return inf
}

// join registers a watcher.
func (r *rig) join(inf *ci, name string, w informer.ResourceWatcher[configMap], opts watchOpts) *informer.Registration {
	r.t.Helper()
	opts.Name = name
	reg, err := inf.AddWatcher(w, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return reg
}

// settle lets time pass in a bubble, and then waits until every goroutine is blocked.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// scrape returns the values of all series that g gathers.
func scrape(t *testing.T, g prom.Gatherer) values {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Errorf("a scrape fails: %v", err)
	}
	all := values{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := func(suffix string) string {
				return family.GetName() + suffix + "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetHistogram() != nil:
				all[name("_count")] = float64(m.GetHistogram().GetSampleCount())
				all[name("_sum")] = m.GetHistogram().GetSampleSum()
			case m.GetCounter() != nil:
				all[name("")] = m.GetCounter().GetValue()
			default:
				all[name("")] = m.GetGauge().GetValue()
			}
		}
	}
	return all
}

// golden fails the test unless all is what the file testdata/name has: the number of series, and those that are
// not 0 in lines as of a scrape. Series that without matches are left out.
func golden(t *testing.T, all values, name string, without *regexp.Regexp) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{fmt.Sprintf("# %d series, of which these are not 0:", len(all))}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !without.MatchString(name) && all[name] != 0 {
			got = append(got, fmt.Sprint(name, " ", strconv.FormatFloat(all[name], 'f', -1, 64)))
		}
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(text)), "\n"), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// of expects these values of all metrics whose names and labels contain part.
func of(t *testing.T, all values, part string, want values) {
	t.Helper()
	got := values{}
	for _, name := range having(all, part) {
		got[name] = all[name]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// having returns the names of series that contain part.
func having(all values, part string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return !strings.Contains(name, part) })
}

// bubble runs a test in a synctest bubble, with an API server and a group.
func bubble(t *testing.T, objects []configMap, test func(r *rig, src *informertest.Source[configMap])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newRig(t), informertest.NewSource(objects...)) })
}

// registered returns a pedantic registry with the collectors.
func registered(collectors ...prom.Collector) *prom.Registry {
	registry := prom.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	return registry
}
