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
	"syscall"
	"time"

	"k8s.io/client-go/tools/cache"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/bulk"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

const nodeIndex = "node"

// during is how long each kind of read and write is measured.
const during = 2 * time.Second

// measure does the work of a child: it runs an informer with one watcher, and then uses the
// store directly.
func measure(ctx context.Context, s setup) (got figures, err error) {
	got = figures{}
	start, when := time.Now(), "cold start: "
	if s.Warm {
		when = "warm start: "
	}
	peak := bulk.WatchMemory()
	if s.ClientGo {
		return s.measureClientGo(ctx, start, peak)
	}
	store, err := openStore(s)
	if err != nil {
		return nil, err
	}
	if store.disk != nil {
		defer func() { err = errors.Join(err, store.disk.Close()) }()
	}
	if s.Warm {
		got[when+"open"] = bulk.Seconds(time.Since(start))
	}
	mode := informer.WatchListOn
	if s.List {
		mode = informer.WatchListOff
	}
	opts := informer.Options[pod]{
		WatchList: mode, PageSize: pageSize, Intake: s.Intake, Transform: s.transform(),
		Indexers: cache.TypedIndexers[pod]{nodeIndex: func(p pod) ([]string, error) { return []string{p.Spec.NodeName}, nil }},
	}
	if store.disk != nil {
		opts.Durable = store.disk
	} else {
		opts.Store = store.memory
	}
	inf, err := informer.NewFrom(s.source().ListWatch(), opts)
	if err != nil {
		return nil, err
	}
	var told atomic.Int64
	reg, err := inf.AddWatcher(informer.WatcherFunc[pod](func(context.Context, informer.Event[pod]) error {
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
	got[when+"until Synced"] = bulk.Seconds(time.Since(start))
	<-reg.Synced()
	got[when+"until the watcher has all"] = bulk.Seconds(time.Since(start))
	want := s.Objects
	if s.Relist {
		want += s.source().Deleted()
	}
	if n := told.Load(); n != int64(want) {
		return nil, fmt.Errorf("the watcher was told %d events, want %d", n, want)
	}
	got[when+"peak of anonymous memory"] = bulk.Mebibytes(peak())
	got[when+"CPU"] = bulk.Seconds(bulk.CPU())
	got.addMemory(s)
	if !s.Short {
		err = use(inf, store, s, got)
	}
	return got, err
}

// addMemory adds the memory that the informer takes after its start.
func (f figures) addMemory(s setup) {
	// The runtime would return this memory within some minutes. A sync.Pool, such as that of bbolt's
	// pages, gives its memory up only at the second collection.
	runtime.GC()
	debug.FreeOSMemory()
	if s.Warm {
		f["warm start: anonymous memory afterwards"] = bulk.Mebibytes(bulk.Anonymous())
		return
	}
	f["steady state: anonymous memory"] = bulk.Mebibytes(bulk.Anonymous())
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	f["steady state: of which heap"] = bulk.Mebibytes(int64(stats.HeapAlloc))
}

// kept is the store that is measured. One of its fields is nil.
type kept struct {
	memory cache.Indexer
	disk   *disk.Store
}

func openStore(s setup) (k kept, err error) {
	if !s.Disk {
		k.memory = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		return k, nil
	}
	opts := disk.Options{Identity: store.Identity{Cluster: "measured"}}
	if s.Process {
		opts.Durability = disk.SurviveProcess
	}
	k.disk, err = disk.Open(s.Path, &corev1.Pod{}, opts)
	return k, err
}

func (k kept) has(key string) (exists bool, err error) {
	if k.disk != nil {
		_, exists, err = k.disk.Get(context.Background(), key)
	} else {
		_, exists, err = k.memory.GetByKey(key)
	}
	return exists, err
}

// use measures the speed of a store that has all objects.
func use(inf *informer.CustomCacheInformer[pod], store kept, s setup, got figures) error {
	if s.Disk {
		var stat syscall.Stat_t
		if err := syscall.Stat(s.Path, &stat); err != nil {
			return err
		}
		got["file"] = bulk.Mebibytes(stat.Blocks * 512)
	}
	random := rand.New(rand.NewPCG(1, 2))
	anyPod := func() pod { return bulk.New(random.IntN(s.Objects), s.Size) }
	var err error
	note := func(e error) { err = errors.Join(err, e) }
	got["gets per second"] = bulk.PerSecond(during, 1, func() {
		exists, e := store.has(bulk.Key(random.IntN(s.Objects)))
		if !exists {
			note(errors.New("an object is not there"))
		}
		note(e)
	})
	got["lists of 100 by index per second"] = bulk.PerSecond(during, 1, func() {
		found, e := inf.ByIndex(nodeIndex, bulk.NodeOf(random.IntN(s.Objects)))
		if len(found) != min(bulk.PerNode, s.Objects) {
			note(fmt.Errorf("%d objects are found", len(found)))
		}
		note(e)
	})
	for _, n := range []int{1, 100, 1000} {
		got["writes per second, "+strconv.Itoa(n)+" at a time"] = bulk.PerSecond(during, n, func() { note(write(store, n, anyPod)) })
	}
	return err
}

// write writes n objects that next returns, in one step if the store can.
func write(store kept, n int, next func() pod) error {
	changes := make([]informer.Change, n)
	for i := range changes {
		p := next()
		p.ResourceVersion = "2" + p.ResourceVersion
		changes[i].Entry = informer.Entry{Key: p.Namespace + "/" + p.Name, Object: p}
	}
	if store.disk != nil {
		return store.disk.Apply(context.Background(), changes, strconv.Itoa(bulk.LastVersion))
	}
	for _, c := range changes {
		if err := store.memory.Update(c.Object); err != nil {
			return err
		}
	}
	return nil
}
