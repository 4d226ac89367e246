package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/e2e/manager/api"
	"github.com/customcacheinformer/informer/internal/lab"
)

type side struct {
	name string
	new  func(toolscache.ListerWatcher, kruntime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer
}

// sides are the columns of the table. Ratios are relative to the first side.
var sides = []side{
	{"client-go", toolscache.NewSharedIndexInformer},
	{"this library", informer.ClientGo{}.NewSharedIndexInformer},
}

// task is the argument of a child. It selects the manager to run.
type task struct {
	work
	subject
	Server process.Address
}

// These are the operations of requests.
const (
	opStart = "start" // run, and answer when everything has been reconciled once
	opBegin = "begin" // begin a new measurement
	opReach = "reach" // answer when everything is at Generations
	opIdle  = "idle"  // collect garbage, do nothing for a while, then answer
)

// request is a question to a child, which answers with a phase.
type request struct {
	Op          string
	Generations map[int]int64
	Idle        time.Duration
}

// phase holds the measurements of a manager since the phase began, and its state at the end.
// Times are in seconds, memory is in bytes.
type phase struct {
	Wall, CPU, Caught float64
	Median, P99       float64 // from the write of an update until it has arrived
	Calls             int64
	Heap, Peak        float64
	Goroutines        int
}

// measured is a manager, with its consumption at the beginning of the current phase.
type measured struct {
	task
	*progress
	at     time.Time
	cpu    time.Duration
	before int64         // calls
	caught time.Duration // time it took to catch up at the end
	heap   float64
	ended  chan error
}

// serve runs a manager until the input ends.
func serve(t task) error {
	log.SetLogger(logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	m := &measured{task: t, progress: newProgress(t.work), ended: make(chan error, 1)}
	err := lab.Answer(func(r request) (p phase, err error) {
		err = m.do(ctx, r)
		p = phase{
			Wall: time.Since(m.at).Seconds(), CPU: (lab.CPU() - m.cpu).Seconds(), Caught: m.caught.Seconds(),
			Calls: m.calls.Load() - m.before, Heap: m.heap, Peak: lab.Memory(lab.Peak), Goroutines: runtime.NumGoroutine(),
		}
		p.Median, p.P99 = m.late()
		return p, err
	})
	cancel()
	if err != nil || m.at.IsZero() {
		return err
	}
	return <-m.ended
}

func (m *measured) begin() { m.at, m.cpu, m.before = time.Now(), lab.CPU(), m.calls.Load() }

func (m *measured) do(ctx context.Context, r request) error {
	switch r.Op {
	case opStart:
		mgr, err := m.manager()
		if err != nil {
			return err
		}
		m.begin()
		go func() { m.ended <- mgr.Start(ctx) }()
		select {
		case <-m.complete:
		case err := <-m.ended:
			return fmt.Errorf("the manager has stopped: %w", err)
		}
	case opBegin:
		m.begin()
	case opReach:
		asked := time.Now()
		for !m.reachedAll(r.Generations) {
			time.Sleep(time.Millisecond)
		}
		m.caught = time.Since(asked)
	case opIdle:
		m.heap, _ = lab.Settled()
		m.begin()
		time.Sleep(r.Idle)
	}
	return nil
}

// manager returns a manager with all its controllers or handlers on the kind.
func (m *measured) manager() (manager.Manager, error) {
	config := m.Server.Config()
	options := manager.Options{
		Scheme:         api.Scheme(group),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return api.Mapper(group), nil },
		Metrics:        metricsserver.Options{BindAddress: "0"},
	}
	for _, s := range sides {
		if s.name == m.Side {
			options.Cache = cache.Options{NewInformer: s.new}
			if s.name != sides[0].name {
				config.Wrap(informer.Transport)
			}
		}
	}
	mgr, err := manager.New(config, options)
	if err != nil {
		return nil, err
	}
	for n := range m.Controllers {
		add := m.addController
		if m.Handlers {
			add = m.addHandler
		}
		if err := add(mgr, n); err != nil {
			return nil, err
		}
	}
	return mgr, nil
}
