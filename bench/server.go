package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/customcacheinformer/informer"
)

type resource = *unstructured.Unstructured

func serverSection(sz sizes) section {
	s := section{
		name:  "server",
		title: "A real API server",
		about: fmt.Sprintf("One watcher follows %d custom resources of about 1 KiB at a real Kubernetes API server with a real etcd: time from the start of the ", sz.custom) +
			fmt.Sprintf("informer until the watcher has all of them, then %d updates by %s at once, as fast as the server takes them. Both sides use the ", sz.written, plural(writers, "writer")) +
			"dynamic client, unstructured objects, and WatchList, which is the default of both. Server and writers run in a separate process, so the CPU time is that of the informer's process, including decoding and garbage " +
			"collection. The number of updates seen is limited by the server, which runs on the same cores: the less CPU the informer takes, the " +
			"more updates the server makes.",
	}
	var server *child
	s.open = func(ctx context.Context) (func() error, error) {
		var err error
		if server, err = startChild(ctx); err != nil {
			return nil, fmt.Errorf("starting the API server: %w", err)
		}
		if err := server.do(ctx, request{Op: opCreate, Count: sz.custom}); err != nil {
			return nil, errors.Join(err, server.close())
		}
		return server.close, nil
	}
	objects := fmt.Sprintf("%d custom resources", sz.custom)
	s.cases = []measurement{{
		rows: []row{
			{name: objects + ", until synced", unit: "ms"},
			{name: objects + ", CPU until synced", unit: "ms"},
			{name: "updates seen", unit: "/s", higher: true},
			{name: "CPU per update", unit: "µs"},
		},
		measure: func(ctx context.Context, side side) ([]float64, error) {
			return follow(ctx, side, server, sz.custom, sz.written)
		},
	}}
	return s
}

// follow measures an informer of a side from its start until it has seen all updates.
func follow(ctx context.Context, s side, server *child, objects, updates int) (values []float64, err error) {
	lw, hangUp, err := connect(server.kubeconfig)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	inf, err := open[resource](s, lw)
	if err != nil {
		return nil, err
	}
	all, updated := newTally(1), newTally(1)
	first, last := count[resource](all, objects), count[resource](updated, objects+updates)
	if _, err = inf.add(func(r resource) { first(r); last(r) }, everyEvent); err != nil {
		return nil, err
	}
	begin, cpuBegin := restart(), cpuTime()
	running := start(inf.run)
	defer running.stop(&err)
	if err := all.wait(ctx); err != nil {
		return nil, err
	}
	synced, cpuSynced := time.Now(), cpuTime()
	if err := server.do(ctx, request{Op: opUpdate, Count: updates}); err != nil {
		return nil, err
	}
	if err := updated.wait(ctx); err != nil {
		return nil, err
	}
	took, cpu := time.Since(synced), cpuTime()-cpuSynced
	return []float64{
		milliseconds(synced.Sub(begin)), milliseconds(cpuSynced - cpuBegin),
		float64(updates) / took.Seconds(), microseconds(cpu) / float64(updates),
	}, nil
}

// connect returns a source with its own connection. hangUp closes the connection.
func connect(kubeconfig string) (lw cache.ListerWatcher, hangUp func(), err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfigAndClient(config, transport)
	if err != nil {
		return nil, nil, err
	}
	return informer.ListWatch(client.Resource(widgets)), func() { utilnet.CloseIdleConnectionsFor(transport.Transport) }, nil
}

// cpuTime returns the processor time of this process so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0 // it cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
