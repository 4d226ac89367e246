package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
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
	"github.com/customcacheinformer/informer/e2e/manager/api"
)

// side is one of the informers that are compared.
type side struct {
	name string
	new  func(toolscache.ListerWatcher, kruntime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer
}

// sides are the columns of the table. Ratios are relative to the first side.
var sides = []side{
	{"client-go", toolscache.NewSharedIndexInformer},
	{"this library", informer.ClientGo{}.NewSharedIndexInformer},
}

// beChild runs the manager's process. The first line of its input is its task, and each
// further line is a request. It ends when its input ends.
func beChild(in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // the terminal interrupts this process as well as the parent
	log.SetLogger(logr.Discard())
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	var t task
	if err := requests.Decode(&t); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m := &measured{task: t, progress: newProgress(t.work)}
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			cancel()
			return <-m.ended
		} else if err != nil {
			return err
		}
		var answer reply
		if err := m.serve(ctx, r); err != nil {
			answer.Error = err.Error()
		}
		answer.Phase = m.since(m.begun)
		if err := replies.Encode(answer); err != nil {
			return err
		}
	}
}

// measured is a manager, with the usage at the beginning of the current phase.
type measured struct {
	task
	*progress
	begun  usage
	caught time.Duration // time it took to catch up at the end
	heap   uint64
	ended  chan error
}

func (m *measured) serve(ctx context.Context, r request) error {
	switch r.Op {
	case opStart:
		mgr, err := m.manager()
		if err != nil {
			return err
		}
		m.begun = m.usage()
		m.ended = make(chan error, 1)
		go func() { m.ended <- mgr.Start(ctx) }()
		select {
		case <-m.complete:
			return nil
		case err := <-m.ended:
			return fmt.Errorf("the manager has stopped: %w", err)
		}
	case opBegin:
		m.begun = m.usage()
	case opReach:
		asked := time.Now()
		for !m.at(r.Generations) {
			time.Sleep(time.Millisecond)
		}
		m.caught = time.Since(asked)
	case opIdle:
		m.heap = liveHeap()
		m.begun = m.usage()
		time.Sleep(r.Idle)
	}
	return nil
}

// manager returns a manager with all its controllers or handlers on the kind.
func (m *measured) manager() (manager.Manager, error) {
	config := &rest.Config{Host: m.Host, BearerToken: m.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: m.CA}}
	options := manager.Options{
		Scheme:         api.Scheme(group),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return api.Mapper(group), nil },
		Metrics:        metricsserver.Options{BindAddress: "0"},
	}
	for _, s := range sides {
		if s.name == m.Side {
			options.Cache = cache.Options{NewInformer: s.new}
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

// liveHeap returns the size of the heap without garbage.
func liveHeap() uint64 {
	for range 3 { // one collection leaves objects in pools and objects with finalizers
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
