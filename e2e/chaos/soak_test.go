package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/internal/stage"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/metrics/prometheus"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

const (
	joiners    = 20
	joinPause  = 10 * time.Millisecond // pause of each joiner, so that there are up to 2,000 joins a second
	memberEach = 50                    // one join in this many is a whole informer, with requests and a connection
)

// soak is a program in which watchers come and go.
type soak struct {
	stage.T
	ctx       context.Context
	cancel    context.CancelFunc
	client    dynamic.Interface
	group     informer.Group
	metrics   *prometheus.Metrics
	informers []*informer.CustomCacheInformer[object]
	shared    cache.SharedIndexInformer
	joins     atomic.Int64
	members   atomic.Int64
	told      atomic.Int64
	going     sync.WaitGroup
	pause     sync.RWMutex // held by each joiner from its join until it has left; locked to stop all joins
}

// TestSoak fails if each join leaves behind a goroutine, a kilobyte, a file or a metric. It
// compares the medians of the second and the last quarter, which are half of all joins apart.
// There, a leak of one goroutine or 1 kB per join appears twice as large as the allowance per
// join. The API server runs in another process.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("set -soak to the time for which watchers come and go; see make chaos")
	}
	s := newSoak(t)
	s.start()
	var all []sample
	begin := time.Now()
	const samples = 20
	for n := range samples {
		stage.Pass(s.ctx, time.Until(begin.Add(*soakFor*time.Duration(n+1)/samples)))
		all = append(all, s.sample(time.Since(begin)))
	}
	s.cancel()
	s.going.Wait()
	length := time.Since(begin).Round(time.Second)
	publish(t, fmt.Sprintf("soak for %v, %d joins, %d of whole informers, %d events delivered", length, s.joins.Load(), s.members.Load(), s.told.Load()), samplesTable(all))
	if err := growth(all); err != nil {
		t.Error(err)
	}
}

func newSoak(t *testing.T) *soak {
	s := &soak{T: stage.T{T: t}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	server, config, err := process.StartServer(context.Background(), "apiserver", struct{}{})
	s.OK(err)
	t.Cleanup(func() { s.OK(server.End()) })
	s.client, err = dynamic.NewForConfig(config)
	s.OK(err)
	s.metrics = prometheus.New(s.group.Health)
	s.group.Observer = s.metrics.Observer()
	s.group.ErrorHandler = func(_ context.Context, err error) {
		if !errors.Is(err, errOnPurpose) && !errors.Is(err, context.Canceled) {
			t.Errorf("reported: %v", err)
		}
	}
	return s
}

// start starts the informers that stay, and the goroutines that join them.
func (s *soak) start() {
	resource := allKinds()[0].resource()
	store, err := disk.Open(filepath.Join(s.TempDir(), "objects.db"), &unstructured.Unstructured{}, disk.Options{Identity: store.Identity{Cluster: "e2e", Resource: resource.String()}})
	s.OK(err)
	s.Cleanup(func() { s.OK(store.Close()) })
	for name, opts := range map[string]options{
		"DeltaFIFO": {}, "RealFIFO": {Queue: informer.QueueRealFIFO}, "disk": {Durable: store}, "durable": {Durable: informertest.NewDurable()},
	} {
		opts.Name = name
		inf, err := informer.NewFrom(informer.ListWatch(s.client.Resource(resource)), opts)
		s.OK(err)
		s.OK(s.group.Add(inf))
		s.informers = append(s.informers, inf)
		if name == "DeltaFIFO" {
			s.shared = inf.SharedIndexInformer()
		}
		// This watcher stays. Without any watcher, tombstones would wait for one to register.
		_, err = inf.AddWatcher(informer.WatcherFunc[object](func(context.Context, informer.Event[object]) error { return nil }), informer.WatcherOptions{Name: "stays"})
		s.OK(err)
	}
	s.going.Go(func() {
		if err := s.group.Run(s.ctx); err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(func() { s.cancel(); s.going.Wait() })
	s.OK(s.group.WaitForSync(s.ctx))
	for n := range joiners {
		s.going.Go(func() { s.keepJoining(n, rand.New(rand.NewPCG(uint64(n), 4))) })
	}
}

func (s *soak) keepJoining(joiner int, random *rand.Rand) {
	for n := 0; stage.Pass(s.ctx, joinPause); n++ {
		s.join(joiner, n, random)
	}
}

// join joins in one of several ways, and leaves. joiner is the number of the goroutine, and n that
// of the call.
func (s *soak) join(joiner, n int, random *rand.Rand) {
	s.pause.RLock()
	defer s.pause.RUnlock()
	switch {
	case n%memberEach == 0:
		s.joinAsMember(joiner)
	case n%3 == 0:
		s.joinAsHandler(random)
	default:
		s.joinAsWatcher(random)
	}
	s.joins.Add(1)
}

// joinAsMember adds an informer with a watcher to the group, and removes it again.
func (s *soak) joinAsMember(joiner int) {
	resource := allKinds()[1].resource()
	source := informer.ListWatch(s.client.Resource(resource).Namespace(namespaces[0]))
	inf, err := informer.NewFrom(source, options{Name: fmt.Sprint("member", joiner)})
	if err == nil {
		_, err = inf.AddWatcher(informer.WatcherFunc[object](s.tell), informer.WatcherOptions{Name: "watcher", RecoverPanics: true})
	}
	if err == nil {
		err = s.group.Add(inf)
	}
	if err != nil {
		if s.ctx.Err() == nil {
			s.Error(err)
		}
		return
	}
	_ = inf.WaitForSync(s.ctx)
	if err := s.group.Remove(inf); err != nil && s.ctx.Err() == nil {
		s.Error(err)
	}
	s.members.Add(1)
}

func (s *soak) tell(_ context.Context, e informer.Event[object]) error {
	switch s.told.Add(1) % 1000 {
	case 1:
		return errOnPurpose
	case 2:
		panic(errOnPurpose)
	}
	_ = e.Key()
	return nil
}

// joinAsHandler adds a client-go event handler, and removes it again.
func (s *soak) joinAsHandler(random *rand.Rand) {
	reg, err := s.shared.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { s.told.Add(1) },
	}, cache.HandlerOptions{})
	if err != nil {
		if s.ctx.Err() == nil {
			s.Error(err)
		}
		return
	}
	if random.IntN(2) == 0 {
		cache.WaitForCacheSync(s.ctx.Done(), reg.HasSynced)
	}
	if err := s.shared.RemoveEventHandler(reg); err != nil {
		s.Error(err)
	}
}

// joinAsWatcher adds a watcher with random options, and removes it again.
func (s *soak) joinAsWatcher(random *rand.Rand) {
	var w informer.ResourceWatcher[object] = informer.WatcherFunc[object](s.tell)
	if random.IntN(4) == 0 {
		w = informer.Select(w, func(obj object) bool { return obj.GetLabels()[colour] == colours[0] })
	}
	opts := anyOptions(random.IntN, time.Millisecond)
	opts.Name, opts.RecoverPanics = "watcher", true
	reg, err := s.informers[random.IntN(len(s.informers))].AddWatcher(w, opts)
	if err != nil {
		if !errors.Is(err, informer.ErrStopped) {
			s.Error(err)
		}
		return
	}
	if random.IntN(2) == 0 {
		select {
		case <-reg.Synced():
		case <-reg.Stopped():
		}
	}
	reg.Remove()
	<-reg.Stopped()
}

// series returns the number of metrics.
func (s *soak) series() int {
	ch := make(chan prom.Metric)
	go func() {
		defer close(ch)
		s.metrics.Collect(ch)
	}()
	n := 0
	for range ch {
		n++
	}
	return n
}

// samplesTable renders the samples as a Markdown table.
func samplesTable(all []sample) string {
	var text strings.Builder
	lab.Header(&text, 0, "after", "joins", "goroutines", "live heap", "files", "metrics")
	for _, s := range all {
		fmt.Fprintf(&text, "| %v | %d | %d | %.1f MiB | %d | %d |\n", s.at.Round(100*time.Millisecond), s.joins, s.goroutines, float64(s.heap)/(1<<20), s.files, s.series)
	}
	return text.String()
}
