//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/valkey-io/valkey-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/bulk"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/valkey"
)

var identity = store.Identity{Cluster: "measured", Resource: "pods"}

// measure does the work of a child.
func (s setup) measure(ctx context.Context) ([]row, error) {
	c, err := client.NewClient(client.ClientOption{InitAddress: []string{s.Server}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if s.Role == reader {
		source, err := valkey.NewSource(c, &corev1.Pod{}, identity)
		if err != nil {
			return nil, err
		}
		return s.run(ctx, source, informer.Options[bulk.Pod]{})
	}
	on, err := valkey.Open(ctx, c, &corev1.Pod{}, valkey.Options{Identity: identity})
	if err != nil {
		return nil, err
	}
	if s.Role == use {
		return s.use(ctx, on)
	}
	source := bulk.Source{Objects: s.Objects, Size: s.Size}.ListWatch()
	return s.run(ctx, source, informer.Options[bulk.Pod]{Durable: on, PageSize: 500})
}

// run measures the start of an informer with one watcher.
func (s setup) run(ctx context.Context, source cache.ListerWatcher, opts informer.Options[bulk.Pod]) (rows []row, err error) {
	start, peak := time.Now(), bulk.WatchMemory()
	inf, err := informer.NewFrom(source, opts)
	if err != nil {
		return nil, err
	}
	var told atomic.Int64
	reg, err := inf.AddWatcher(informer.WatcherFunc[bulk.Pod](func(context.Context, informer.Event[bulk.Pod]) error {
		told.Add(1)
		return nil
	}), informer.WatcherOptions{})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() {
		if err := inf.Run(running); err != nil {
			log.Fatal(err)
		}
	})
	<-inf.Synced()
	rows = append(rows, row{"until Synced", bulk.Seconds(time.Since(start))})
	<-reg.Synced()
	rows = append(rows, row{"until the watcher has all", bulk.Seconds(time.Since(start))})
	if n := told.Load(); n != int64(s.Objects) {
		return nil, fmt.Errorf("the watcher was told %d events, want %d", n, s.Objects)
	}
	rows = append(rows, row{"CPU", bulk.Seconds(bulk.CPU())}, row{"peak of memory", bulk.Mebibytes(peak())})
	runtime.GC()
	debug.FreeOSMemory()
	return append(rows, row{"memory afterwards", bulk.Mebibytes(bulk.Anonymous())}), nil
}

// use measures the speed of a store that has all objects.
func (s setup) use(ctx context.Context, on *valkey.Store) (rows []row, err error) {
	var mu sync.Mutex // protects err
	note := func(e error) {
		mu.Lock()
		defer mu.Unlock()
		err = errors.Join(err, e)
	}
	get := func() {
		_, exists, e := on.Get(ctx, bulk.Key(rand.IntN(s.Objects)))
		if e == nil && !exists {
			e = errors.New("an object is not there")
		}
		note(e)
	}
	add := func(name, value string) { rows = append(rows, row{name, value}) }
	add("gets a second", bulk.PerSecond(s.During, 1, get))
	const at = 100
	add("gets a second, 100 callers", bulk.PerSecond(s.During, at*10, func() {
		var callers sync.WaitGroup
		for range at {
			callers.Go(func() {
				for range 10 {
					get()
				}
			})
		}
		callers.Wait()
	}))
	const page = 500
	add("objects of Scan a second, 500 at a time", bulk.PerSecond(s.During, min(page, s.Objects), func() {
		found, e := on.Scan(ctx, bulk.Key(rand.IntN(max(1, s.Objects-page))), page)
		if e == nil && len(found) != min(page, s.Objects-1) {
			e = fmt.Errorf("%d objects are found", len(found))
		}
		note(e)
	}))
	version := bulk.LastVersion
	for _, n := range []int{1, 100, 1000} {
		add("writes a second, "+strconv.Itoa(n)+" in an Apply", bulk.PerSecond(s.During, n, func() {
			changes := make([]informer.Change, n)
			for i := range changes {
				version++ // as an API server's versions do, so that each change is in the log
				p := bulk.New(rand.IntN(s.Objects), s.Size)
				p.ResourceVersion = strconv.Itoa(version)
				changes[i].Entry = informer.Entry{Key: p.Namespace + "/" + p.Name, Object: p}
			}
			note(on.Apply(ctx, changes, strconv.Itoa(version)))
		}))
	}
	if err != nil {
		return nil, err
	}
	st, err := on.Status(ctx)
	add("changes in the log afterwards", bulk.Thousands(int(st.Log)))
	return rows, err
}
