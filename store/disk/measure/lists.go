//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/bulk"
)

// pageSize is the size of the pages of a list.
const pageSize = 500

// compareLists prints a table of what first lists need. Its largest list has most objects.
func compareLists(most, size int, dir string, out io.Writer) error {
	const whole, early = informer.IntakeWhole, informer.IntakeEarly
	fmt.Fprintf(out, "\n## First lists\n\n| | objects | | peak of anonymous memory | afterwards | CPU | until the watcher has all |\n|---|---:|---|---:|---:|---:|---:|\n")
	for i, row := range []struct {
		name  string
		share int // most is divided by it
		setup
	}{
		{"disk, a whole list", 5, setup{Disk: true, Intake: whole}},
		{"disk, as it comes in", 5, setup{Disk: true, Intake: early}},
		{"disk, as it comes in", 10, setup{Disk: true, Intake: early}},
		{"disk, as it comes in", 1, setup{Disk: true, Intake: early}},
		{"disk, a relist after 410", 1, setup{Disk: true, Intake: early, Relist: true}},
		{"in memory, metadata: client-go's informer", 5, setup{Reduce: true, ClientGo: true}},
		{"in memory, metadata: a whole list", 5, setup{Reduce: true, Intake: whole}},
		{"in memory, metadata: as it comes in", 5, setup{Reduce: true, Intake: early}},
	} {
		for _, list := range []bool{true, false} {
			s := row.setup
			s.Objects, s.Size, s.List, s.Short, s.Process = max(1, most/row.share), size, list, true, true
			s.Path = filepath.Join(dir, fmt.Sprint(i, list))
			when, how := "cold start: ", "stream"
			if list {
				how = "pages of " + strconv.Itoa(pageSize)
			}
			if s.Relist { // of what the row before has stored
				s.Path, s.Warm = filepath.Join(dir, fmt.Sprint(i-1, list)), true
				when = "warm start: "
			}
			got := figures{}
			if err := run(s, got); err != nil {
				return fmt.Errorf("%s, %s: %w", row.name, how, err)
			}
			fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s |\n", row.name, bulk.Thousands(s.Objects), how,
				got[when+"peak of anonymous memory"], got.afterwards(s), got[when+"CPU"], got[when+"until the watcher has all"])
		}
	}
	return nil
}

// afterwards returns the memory when all is quiet.
func (f figures) afterwards(s setup) string {
	if s.Warm {
		return f["warm start: anonymous memory afterwards"]
	}
	return f["steady state: anonymous memory"]
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
func (s setup) measureClientGo(ctx context.Context, start time.Time, peak func() int64) (figures, error) {
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
		return nil, err
	}
	reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go inf.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		return nil, ctx.Err()
	}
	got := figures{
		"cold start: until the watcher has all": bulk.Seconds(time.Since(start)),
		"cold start: peak of anonymous memory":  bulk.Mebibytes(peak()),
		"cold start: CPU":                       bulk.Seconds(bulk.CPU()),
	}
	got.addMemory(s)
	return got, nil
}

// noStream is a client that cannot stream a first state.
type noStream struct{}

// IsWatchListSemanticsUnSupported tells client-go to list.
func (noStream) IsWatchListSemanticsUnSupported() bool { return true }
