//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

const nodeIndex = "node"

// during is how long each kind of read and write is measured.
const during = 2 * time.Second

// measure does the work of a child: it runs an informer with one watcher, and then uses the
// store directly.
func measure(s setup) (got figures, err error) {
	launch, got := lab.NewLaunch(), figures{}
	if s.ClientGo {
		return got, s.measureClientGo(launch, got)
	}
	store, err := openStore(s)
	if err != nil {
		return nil, err
	}
	if store.disk != nil {
		defer func() { err = errors.Join(err, store.disk.Close()) }()
	}
	if s.Warm {
		got["warm start: open"] = lab.Seconds(launch.Since())
	}
	opts := informer.Options[pod]{
		WatchList: informer.WatchListOn, PageSize: pageSize, Intake: s.Intake, Transform: s.transform(),
		Indexers: informer.Indexers[pod]{nodeIndex: func(p pod) ([]string, error) { return []string{p.Spec.NodeName}, nil }},
	}
	if s.List {
		opts.WatchList = informer.WatchListOff
	}
	if store.disk != nil {
		opts.Durable = store.disk
	} else {
		opts.Store = store.memory
	}
	events := s.Objects
	if s.Relist {
		events += s.source().Deleted()
	}
	inf, stop, err := launch.Run(context.Background(), s.source().ListWatch(), opts, events)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	got.add(s, launch)
	if !s.Short {
		err = use(inf, store, s, got)
	}
	return got, err
}

// add adds the figures of the start, and the memory that the informer takes afterwards.
func (f figures) add(s setup, launch *lab.Launch) {
	when := "cold start: "
	if s.Warm {
		when = "warm start: "
	}
	f[when+"until Synced"] = lab.Seconds(launch.Synced)
	f[when+"until the watcher has all"] = lab.Seconds(launch.All)
	f[when+"peak of anonymous memory"] = lab.Mebibytes(launch.Peak)
	f[when+"CPU"] = lab.Seconds(launch.CPU)
	memory := lab.Mebibytes(lab.Returned())
	if s.Warm {
		f["warm start: anonymous memory afterwards"] = memory
		return
	}
	f["steady state: anonymous memory"] = memory
	f["steady state: of which heap"] = lab.Mebibytes(lab.Bytes(lab.HeapObjects))
}

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

func use(inf *informer.CustomCacheInformer[pod], store kept, s setup, got figures) error {
	if s.Disk {
		var stat syscall.Stat_t
		if err := syscall.Stat(s.Path, &stat); err != nil {
			return err
		}
		got["file"] = lab.Mebibytes(float64(stat.Blocks * 512))
	}
	random := rand.New(rand.NewPCG(1, 2))
	var err error
	note := func(e error) { err = errors.Join(err, e) }
	got["gets per second"] = lab.PerSecond(during, 1, func() {
		exists, e := store.has(lab.Key(random.IntN(s.Objects)))
		if !exists {
			note(errors.New("an object is not there"))
		}
		note(e)
	})
	got["lists of 100 by index per second"] = lab.PerSecond(during, 1, func() {
		found, e := inf.ByIndex(nodeIndex, lab.NodeOf(random.IntN(s.Objects)))
		if len(found) != min(lab.PerNode, s.Objects) {
			note(fmt.Errorf("%d objects are found", len(found)))
		}
		note(e)
	})
	for _, n := range []int{1, 100, 1000} {
		got["writes per second, "+strconv.Itoa(n)+" at a time"] = lab.PerSecond(during, n, func() {
			note(write(store, n, func() pod { return lab.NewPod(random.IntN(s.Objects)) }))
		})
	}
	return err
}

func write(store kept, n int, next func() pod) error {
	changes := make([]informer.Change, n)
	for i := range changes {
		p := next()
		p.ResourceVersion = "2" + p.ResourceVersion
		changes[i].Entry = informer.Entry{Key: p.Namespace + "/" + p.Name, Object: p}
	}
	if store.disk != nil {
		return store.disk.Apply(context.Background(), changes, strconv.Itoa(lab.LastVersion))
	}
	for _, c := range changes {
		if err := store.memory.Update(c.Object); err != nil {
			return err
		}
	}
	return nil
}

// transform returns a Transform that keeps the metadata without the annotations, or nil.
func (s setup) transform() func(pod) (pod, error) {
	if !s.Reduce {
		return nil
	}
	return func(p pod) (pod, error) {
		small := &corev1.Pod{ObjectMeta: p.ObjectMeta}
		small.Annotations, small.Spec.NodeName, small.Status.Phase = nil, p.Spec.NodeName, p.Status.Phase
		return small, nil
	}
}

// measureClientGo measures a first list with client-go's informer and one handler.
func (s setup) measureClientGo(launch *lab.Launch, got figures) error {
	source := s.source().ListWatch()
	var lw cache.ListerWatcher = source
	if s.List {
		lw = cache.ToListWatcherWithWatchListSemantics(source, noStream{})
	}
	inf := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{
		nodeIndex: func(obj any) ([]string, error) { return []string{obj.(pod).Spec.NodeName}, nil },
	})
	reduce := s.transform()
	if err := inf.SetTransform(func(obj any) (any, error) { return reduce(obj.(pod)) }); err != nil {
		return err
	}
	reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go inf.RunWithContext(ctx)
	<-reg.HasSyncedChecker().Done()
	launch.Done()
	got.add(s, launch)
	return nil
}

// noStream is a client that cannot stream a first state.
type noStream struct{}

// IsWatchListSemanticsUnSupported makes client-go list.
func (noStream) IsWatchListSemanticsUnSupported() bool { return true }
