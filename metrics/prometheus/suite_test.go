package prometheus_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	prom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

// Short names for the helpers that the test packages share.
type (
	ci        = testkit.Informer
	configMap = testkit.ConfigMap
	event     = testkit.Event
	options   = testkit.Options
	watchOpts = informer.WatcherOptions
	watcher   = informer.WatcherFunc[configMap]
)

var (
	keyOf       = testkit.KeyOf
	must        = testkit.Must
	noError     = testkit.NoError
	object      = testkit.Object
	sleepBubble = testkit.SleepBubble
)

type values = map[string]float64

// ignore is a watcher that does nothing.
var ignore = watcher(func(context.Context, event) error { return nil })

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
	r.stop = sync.OnceFunc(func() {
		cancel()
		noError(t, <-done)
	})
	t.Cleanup(r.stop)
	return r
}

// add adds an informer to the group. Its name is "i" unless opts have another. Like join, add may be called from any
// goroutine, so it panics if there is an error.
func (r *rig) add(lw cache.ListerWatcher, opts options) *ci {
	if opts.Name == "" {
		opts.Name = "i"
	}
	inf, err := informer.NewFrom(lw, opts)
	if err == nil {
		err = r.group.Add(inf)
	}
	if err != nil {
		panic(err)
	}
	return inf
}

// join registers a watcher.
func (r *rig) join(inf *ci, name string, w informer.ResourceWatcher[configMap], opts watchOpts) *informer.Registration {
	opts.Name = name
	reg, err := inf.AddWatcher(w, opts)
	if err != nil {
		panic(err)
	}
	return reg
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

// scraping scrapes g again and again from two goroutines, until stop is called. stop waits for them.
func scraping(t *testing.T, g prom.Gatherer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var scrapes sync.WaitGroup
	for range 2 {
		scrapes.Go(func() {
			for ctx.Err() == nil {
				scrape(t, g)
				runtime.Gosched()
			}
		})
	}
	return func() {
		cancel()
		scrapes.Wait()
	}
}

// golden fails the test unless all is what the file testdata/name has: the number of series, and those that are
// not 0 in lines as of a scrape. Series that without matches are left out.
func golden(t *testing.T, all values, name string, without *regexp.Regexp) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	must(t, err)
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
