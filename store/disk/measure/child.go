//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
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
	"github.com/customcacheinformer/informer/store/disk"
)

const nodeIndex = "node"

// measure does the work of a child: it runs an informer with one watcher, and then uses the
// store directly.
func measure(ctx context.Context, s setup) (got figures, err error) {
	got = figures{}
	start, when := time.Now(), "cold start: "
	if s.Warm {
		when = "warm start: "
	}
	peak := watchMemory()
	if s.ClientGo {
		return s.measureClientGo(ctx, start, peak)
	}
	store, err := openStore(s)
	if err != nil {
		return nil, err
	}
	if s.Disk {
		defer func() { err = errors.Join(err, store.(*disk.Store).Close()) }()
	}
	if s.Warm {
		got[when+"open"] = seconds(time.Since(start))
	}
	mode := informer.WatchListOn
	if s.List {
		mode = informer.WatchListOff
	}
	inf, err := informer.NewFrom(newSource(s), informer.Options[pod]{
		Store: store, WatchList: mode, PageSize: pageSize, Intake: s.Intake, Transform: s.transform(),
		Indexers: cache.TypedIndexers[pod]{nodeIndex: func(p pod) ([]string, error) { return []string{p.Spec.NodeName}, nil }},
	})
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
	got[when+"until Synced"] = seconds(time.Since(start))
	<-reg.Synced()
	got[when+"until the watcher has all"] = seconds(time.Since(start))
	want := s.Objects
	if s.Relist {
		want += s.deleted()
	}
	if n := told.Load(); n != int64(want) {
		return nil, fmt.Errorf("the watcher was told %d events, want %d", n, want)
	}
	got[when+"peak of anonymous memory"] = mebibytes(peak())
	got[when+"CPU"] = seconds(cpu())
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
		f["warm start: anonymous memory afterwards"] = mebibytes(anonymous())
		return
	}
	f["steady state: anonymous memory"] = mebibytes(anonymous())
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	f["steady state: of which heap"] = mebibytes(int64(stats.HeapAlloc))
}

func openStore(s setup) (cache.Indexer, error) {
	if !s.Disk {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), nil
	}
	opts := disk.Options{}
	if s.Process {
		opts.Durability = disk.SurviveProcess
	}
	return disk.Open(s.Path, &corev1.Pod{}, opts)
}

// use measures the speed of a store that has all objects.
func use(inf *informer.CustomCacheInformer[pod], store cache.Indexer, s setup, got figures) error {
	if s.Disk {
		var stat syscall.Stat_t
		if err := syscall.Stat(s.Path, &stat); err != nil {
			return err
		}
		got["file"] = mebibytes(stat.Blocks * 512)
	}
	random := rand.New(rand.NewPCG(1, 2))
	anyPod := func() pod { return newPod(random.IntN(s.Objects), s.Size) }
	var err error
	note := func(e error) { err = errors.Join(err, e) }
	got["gets per second"] = perSecond(1, func() {
		_, exists, e := store.GetByKey(podKey(random.IntN(s.Objects)))
		if !exists {
			note(errors.New("an object is not there"))
		}
		note(e)
	})
	got["lists of 100 by index per second"] = perSecond(1, func() {
		found, e := inf.ByIndex(nodeIndex, nodeOf(random.IntN(s.Objects)))
		if len(found) != min(perNode, s.Objects) {
			note(fmt.Errorf("%d objects are found", len(found)))
		}
		note(e)
	})
	for _, n := range []int{1, 100, 1000} {
		got["writes per second, "+strconv.Itoa(n)+" at a time"] = perSecond(n, func() { note(write(store, n, anyPod)) })
	}
	return err
}

// write writes n objects that next returns, in one step if the store can.
func write(store cache.Indexer, n int, next func() pod) error {
	changes := make([]cache.Transaction, n)
	for i := range changes {
		p := next()
		p.ResourceVersion = "2" + p.ResourceVersion
		changes[i] = cache.Transaction{Type: cache.TransactionTypeUpdate, Object: p}
	}
	if durable, ok := store.(informer.Durable); ok {
		return durable.Apply(context.Background(), changes, strconv.Itoa(lastVersion))
	}
	for _, c := range changes {
		if err := store.Update(c.Object); err != nil {
			return err
		}
	}
	return nil
}

// perSecond calls f, which does n operations, for two seconds.
func perSecond(n int, f func()) string {
	const enough = 2 * time.Second
	start, done := time.Now(), 0
	for time.Since(start) < enough {
		f()
		done += n
	}
	return thousands(int(float64(done) / time.Since(start).Seconds()))
}

// watchMemory measures the memory every 5 ms until peak is called, which returns the highest
// value.
func watchMemory() (peak func() int64) {
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		highest := anonymous()
		for {
			select {
			case <-tick.C:
				highest = max(highest, anonymous())
			case <-stop:
				most <- highest
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}

// anonymous returns RssAnon: the memory of the process that does not belong to a file. It
// excludes the pages of a mapped file, which the kernel frees when it needs memory.
func anonymous() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err) // the file exists only on Linux
	}
	_, rest, _ := bytes.Cut(status, []byte("RssAnon:"))
	number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
	kib, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		panic(err)
	}
	return kib << 10
}

func mebibytes(n int64) string { return thousands(int(n>>20)) + " MiB" }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
