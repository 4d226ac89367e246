//go:build linux

// Command measure compares the memory and the speed of a disk store with those of client-go's
// indexer, each with an informer on top, and prints a table. A second table has the memory that
// first lists need, when a list is taken in as a whole and while it comes in.
//
//	go run ./measure -objects 1000000
//
// Each figure comes from a process of its own. The objects are Pods of 2 KiB as protobuf, from a source
// inside the process, so that no API server is needed; the source takes the same memory and time for
// both. RESULTS.md is such a report.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
)

type setup struct {
	Objects int
	Disk    bool
	Path    string // of the store's file
	Process bool   // Durability is SurviveProcess
	Warm    bool   // the file exists already
	Short   bool   // measure only the start
	List    bool   // list the first state instead of streaming it

	Intake   informer.IntakeMode
	Reduce   bool // a Transform keeps the metadata
	ClientGo bool // client-go's informer
	Relist   bool // the server no longer has the version of the file, and some objects are deleted
}

type pod = lab.Pod

func (s setup) source() lab.Source { return lab.Source{Objects: s.Objects, Relist: s.Relist} }

// figures are the results of a child, by name.
type figures map[string]string

// rows are the names of figures, in the order of the table.
var rows = []string{
	"cold start: until Synced", "cold start: until the watcher has all", "cold start: peak of anonymous memory",
	"steady state: anonymous memory", "steady state: of which heap",
	"warm start: open", "warm start: until Synced", "warm start: until the watcher has all",
	"warm start: peak of anonymous memory", "warm start: anonymous memory afterwards",
	"file", "gets per second", "lists of 100 by index per second",
	"writes per second, 1 at a time", "writes per second, 100 at a time", "writes per second, 1000 at a time",
}

func main() {
	objects := flag.Int("objects", 100_000, "how many objects there are")
	lab.Main(lab.Roles{"store": lab.Once(measure)}, func(ctx context.Context, out io.Writer) (err error) {
		if err := lab.Positive("objects"); err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "measure-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		load := lab.Load()
		sync, err := syncTime(dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, `# Many objects in memory and in a file

Pods of 2048 bytes as protobuf, with two indexes and one watcher. Each figure comes from a process of its own, on a machine with %d
processors, whose load was %s at the beginning. It took %v to write 4 KiB to the disk and to wait until they are there. Anonymous
memory is without the pages of the file, which are the kernel's cache.
`, runtime.NumCPU(), load, sync)
		if err := compare(ctx, *objects, dir, out); err != nil {
			return err
		}
		return compareLists(ctx, *objects, dir, out)
	})
}

// syncTime returns the median time of a write with fdatasync.
func syncTime(dir string) (time.Duration, error) {
	file, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	var times []float64
	for range 101 {
		begun := time.Now()
		_, err1 := file.WriteAt(make([]byte, 4096), 0)
		err = errors.Join(err, err1, syscall.Fdatasync(int(file.Fd())))
		times = append(times, float64(time.Since(begun)))
	}
	return time.Duration(lab.Median(times)).Round(10 * time.Microsecond), errors.Join(err, file.Close())
}

// compare writes the table of the stores.
func compare(ctx context.Context, objects int, dir string, out io.Writer) error {
	sides := []setup{{}, {Disk: true, Path: filepath.Join(dir, "a.db")}, {Disk: true, Process: true, Path: filepath.Join(dir, "b.db")}}
	titles := []string{"", "client-go's indexer", "disk", "disk, SurviveProcess"}
	all := make([]figures, len(sides))
	for i, s := range sides {
		s.Objects, all[i] = objects, figures{}
		lab.Progress("%s", titles[i+1])
		if s.Disk {
			s.Short = true
			if err := lab.Measure(ctx, "store", s, &all[i]); err != nil {
				return fmt.Errorf("%s: %w", titles[i+1], err)
			}
			s.Short, s.Warm = false, true
		}
		if err := lab.Measure(ctx, "store", s, &all[i]); err != nil {
			return fmt.Errorf("%s: %w", titles[i+1], err)
		}
		_ = os.Remove(s.Path) // the lists need the room
	}
	fmt.Fprintf(out, "\n## A store: %s objects, streamed\n\n", lab.Thousands(objects))
	lab.Header(out, 1, titles...)
	for _, row := range rows {
		cells := []string{row}
		for _, got := range all {
			cells = append(cells, cmp.Or(got[row], "–"))
		}
		lab.Cells(out, cells...)
	}
	return nil
}

// pageSize is the size of the pages of a list.
const pageSize = 500

// compareLists writes a table of what first lists need. Its largest list has most objects.
func compareLists(ctx context.Context, most int, dir string, out io.Writer) error {
	const whole, early = informer.IntakeWhole, informer.IntakeEarly
	fmt.Fprintf(out, "\n## First lists\n\n")
	lab.Header(out, 3, "", "objects", "", "peak of anonymous memory", "afterwards", "CPU", "until the watcher has all")
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
			s.Objects, s.List, s.Short, s.Process = max(1, most/row.share), list, true, true
			s.Path = filepath.Join(dir, fmt.Sprint(i, list))
			when, how, afterwards := "cold start: ", "stream", "steady state: anonymous memory"
			if list {
				how = "pages of " + strconv.Itoa(pageSize)
			}
			if s.Relist { // of what the row before has stored
				s.Path, s.Warm = filepath.Join(dir, fmt.Sprint(i-1, list)), true
				when, afterwards = "warm start: ", "warm start: anonymous memory afterwards"
			}
			got := figures{}
			lab.Progress("%s, %s", row.name, how)
			if err := lab.Measure(ctx, "store", s, &got); err != nil {
				return fmt.Errorf("%s, %s: %w", row.name, how, err)
			}
			lab.Cells(out, row.name, lab.Thousands(s.Objects), how, got[when+"peak of anonymous memory"], got[afterwards],
				got[when+"CPU"], got[when+"until the watcher has all"])
		}
	}
	return nil
}
