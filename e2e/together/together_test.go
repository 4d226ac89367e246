package together_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/metrics/prometheus"
	"github.com/customcacheinformer/informer/share"
)

// world is the program, and its clusters.
type world struct {
	stage.T
	ctx      context.Context // ends before the clusters stop
	running  sync.WaitGroup
	stop     func() // ends ctx and waits for the parts
	clusters []*cluster
	group    informer.Group // of all parts
	table    *share.Table   // of all parts
	registry *prom.Registry
	views    []view
	churn    []func() // something that comes and goes
}

// cluster is a cluster as the program reaches it.
type cluster struct {
	*lab.Child
	*apiserver.Proxy
	name   string
	json   *rest.Config // wrapped by informer.Transport
	client kubernetes.Interface
}

// versions are the versions of Pods by key, such as "west/default/shop".
type versions map[string]string

// view is a part of the program that has Pods.
type view struct {
	name string
	of   []*cluster
	has  func(key string) bool // nil if it has all Pods of its clusters
	read func() (versions, error)
}

func TestTogether(t *testing.T) {
	w := &world{T: stage.T{T: t}, table: share.New(), registry: prom.NewRegistry()}
	for n, name := range []string{"east", "west"} {
		w.clusters = append(w.clusters, w.start(name, settings{Seed: uint64(n), Pods: *pods / 2, Rate: max(1, *rate/2)}))
	}
	metrics := prometheus.New(w.group.Health)
	w.registry.MustRegister(metrics)
	w.group.Observer = metrics.Observer()
	w.group.ErrorHandler = func(context.Context, error) {} // the outages
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	w.stop = func() { cancel(); w.running.Wait() }
	t.Cleanup(w.stop)
	w.build()
	w.run(w.group.Run)
	w.synced(&w.group)

	samples := 24
	if testing.Short() {
		samples = 8
	}
	all, begin := []sample{w.sample(0)}, time.Now()
	for n := range samples {
		w.disturb(n, *runFor/time.Duration(samples))
		stage.Pass(ctx, time.Until(begin.Add(*runFor*time.Duration(n+1)/time.Duration(samples))))
		all = append(all, w.sample(time.Since(begin)))
		if (n+1)%4 == 0 { // if it were each sixth time, all that comes and goes would be as it was at the beginning
			w.compare()
		}
	}
	publish(t, fmt.Sprintf("%d Pods, %d changes a second", *pods, *rate), all)
	if *runFor >= 10*time.Minute {
		w.OK(growth(all))
	}
}

// run runs a part until stop is called or w.ctx ends. stop returns when the part has stopped.
func (w *world) run(part func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	stopped := make(chan struct{})
	w.running.Go(func() {
		defer close(stopped)
		defer cancel()
		if err := part(ctx); err != nil {
			w.Error(err)
		}
	})
	return func() { cancel(); <-stopped }
}

// synced waits for a sync. It fails the test at once if that takes too long.
func (w *world) synced(part interface {
	WaitForSync(ctx context.Context) error
}) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, stage.Patience)
	defer cancel()
	w.OK(part.WaitForSync(ctx))
}

// start starts a cluster, with a proxy in front of it.
func (w *world) start(name string, s settings) *cluster {
	child, config, err := process.StartServer(context.Background(), "cluster", s)
	w.OK(err)
	w.Cleanup(func() { w.OK(child.End()) })
	proxy, err := apiserver.NewProxy(config)
	w.OK(err)
	w.Cleanup(proxy.Close)
	c := &cluster{Child: child, Proxy: proxy, name: name, json: proxy.Config()}
	c.json.Wrap(informer.Transport)
	c.client, err = kubernetes.NewForConfig(protobuf(c.json))
	w.OK(err)
	return c
}

func protobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return config
}

// disturb disturbs the connections to one of the clusters, and lets something come or go.
func (w *world) disturb(n int, during time.Duration) {
	c := w.clusters[n%len(w.clusters)]
	switch n % 3 {
	case 0:
		c.Cut()
	case 1:
		c.Refuse()
		stage.Pass(w.ctx, during/10)
		w.OK(c.Allow())
	case 2:
		c.Silence()
	}
	w.churn[n%len(w.churn)]()
}

// compare lets the clusters rest, and waits until each view has the objects of its clusters.
func (w *world) compare() {
	states := map[*cluster]versions{}
	for _, c := range w.clusters {
		var state versions
		w.OK(c.Ask(true, &state))
		states[c] = state
	}
	for _, v := range w.views {
		want := versions{}
		for _, c := range v.of {
			for key, version := range states[c] {
				if v.has == nil || v.has(key) {
					want[c.name+"/"+key] = version
				}
			}
		}
		deadline, err := time.Now().Add(stage.Patience), v.differs(want)
		for ; err != nil && time.Now().Before(deadline); err = v.differs(want) {
			stage.Pass(w.ctx, 100*time.Millisecond)
		}
		if err != nil {
			w.Errorf("%s: %v", v.name, err)
		}
	}
	for _, c := range w.clusters {
		w.OK(c.Ask(false, &versions{}))
	}
}

// differs returns an error if the view does not have these versions.
func (v view) differs(want versions) error {
	got, err := v.read()
	if err != nil {
		return err
	}
	for key, version := range want {
		if got[key] != version {
			return fmt.Errorf("%d Pods instead of %d; %s has version %q, want %s", len(got), len(want), key, got[key], version)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d Pods instead of %d", len(got), len(want))
	}
	return nil
}

// sample holds the figures of one moment.
type sample struct {
	at                 time.Duration
	heap, anonymous    float64 // bytes
	goroutines, series int
	cpu                time.Duration // since the start of the program
}

func (w *world) sample(at time.Duration) sample {
	s := sample{at: at, cpu: lab.CPU(), goroutines: runtime.NumGoroutine(), anonymous: lab.Memory(lab.Anonymous)}
	s.heap, _ = lab.Settled()
	families, err := w.registry.Gather()
	w.OK(err)
	for _, family := range families {
		s.series += len(family.GetMetric())
	}
	return s
}

// growth returns an error if the medians of the last quarter are much larger than those of the second.
func growth(all []sample) error {
	quarter := len(all) / 4
	for name, of := range map[string]func(sample) float64{
		"goroutines":         func(s sample) float64 { return float64(s.goroutines) },
		"bytes of live heap": func(s sample) float64 { return s.heap },
		"metrics":            func(s sample) float64 { return float64(s.series) },
	} {
		before, after := lab.MedianOf(all[quarter:2*quarter], of), lab.MedianOf(all[len(all)-quarter:], of)
		if after > before*1.05 {
			return fmt.Errorf("%s: %.0f in the last quarter, %.0f in the second", name, after, before)
		}
	}
	return nil
}

// publish prints a table, and writes it to the file of -table.
func publish(t *testing.T, title string, all []sample) {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s\n\n", time.Now().UTC().Format(time.DateOnly), title)
	lab.Header(&text, 0, "after", "live heap", "memory of the process", "goroutines", "metrics", "CPU")
	for _, s := range all {
		lab.Cells(&text, s.at.Round(time.Second).String(), lab.Mebibytes(s.heap), lab.Mebibytes(s.anonymous), fmt.Sprint(s.goroutines), fmt.Sprint(s.series), lab.Seconds(s.cpu))
	}
	t.Log(text.String())
	if *table != "" {
		if err := os.WriteFile(*table, []byte(text.String()), 0o600); err != nil {
			t.Error(err)
		}
	}
}
