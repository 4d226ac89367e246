//go:build linux

// Command measure compares the memory and the speed of a disk store with those of client-go's
// indexer, each with an informer on top, and prints a table. A second table has the memory that
// first lists need, when a list is taken in as a whole and while it comes in.
//
//	go run ./measure -objects 1000000
//
// Each figure comes from a process of its own. The objects are Pods of a given size as
// protobuf, from a source inside the process, so that no API server is needed; the source
// takes the same memory and time for both. RESULTS.md is such a report.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/bulk"
)

// setup holds the parameters of a child.
type setup struct {
	Objects, Size int
	Disk          bool
	Path          string // of the store's file
	Process       bool   // Durability is SurviveProcess
	Warm          bool   // the file exists already
	Short         bool   // measure only the start
	List          bool   // list the first state instead of streaming it

	Intake   informer.IntakeMode
	Reduce   bool // a Transform keeps the metadata
	ClientGo bool // client-go's informer
	Relist   bool // the server no longer has the version of the file, and some objects are deleted
}

type pod = bulk.Pod

func (s setup) source() bulk.Source {
	return bulk.Source{Objects: s.Objects, Size: s.Size, Relist: s.Relist}
}

// figures are the results of a child, by name.
type figures map[string]string

// childVariable is the environment variable with the setup of a child.
const childVariable = "MEASURE_CHILD"

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
	log.SetFlags(0)
	if text := os.Getenv(childVariable); text != "" {
		var s setup
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			log.Fatal(err)
		}
		got, err := measure(context.Background(), s)
		if err != nil {
			log.Fatal(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
			log.Fatal(err)
		}
		return
	}
	objects := flag.Int("objects", 100_000, "how many objects there are")
	size := flag.Int("size", 2048, "the size of an object as protobuf, in bytes")
	dir := flag.String("dir", "", "where the files are; a new temporary directory by default")
	list := flag.Bool("list", false, "list the first state, in the order of keys, instead of streaming it, which leaves it in any order")
	without := flag.Bool("without-indexer", false, "leave client-go's indexer out, which takes several KiB of memory per object")
	only := flag.String("only", "", `"stores" or "lists": print only that table`)
	file := flag.String("write", "", "also write the report to this file")
	flag.Parse()
	var report strings.Builder
	s := setup{Objects: *objects, Size: *size, List: *list}
	if err := measureAll(s, *dir, *without, *only, io.MultiWriter(os.Stdout, &report)); err != nil {
		log.Fatal(err)
	}
	if *file != "" {
		if err := os.WriteFile(*file, []byte(report.String()), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// measureAll writes the report.
func measureAll(common setup, parent string, without bool, only string, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(parent, "measure-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	load, err := bulk.Load()
	if err != nil {
		return err
	}
	sync, err := syncTime(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `# Many objects in memory and in a file

Pods of %d bytes as protobuf, with two indexes and one watcher. Each figure comes from a process of its own, on a machine with %d
processors, whose load was %s at the beginning. It took %v to write 4 KiB to the disk and to wait until they are there. Anonymous
memory is without the pages of the file, which are the kernel's cache.
`, common.Size, runtime.NumCPU(), load, sync)
	if only != "lists" {
		if err := compare(common, dir, without, out); err != nil {
			return err
		}
	}
	if only != "stores" {
		return compareLists(common.Objects, common.Size, dir, out)
	}
	return nil
}

// syncTime returns the median time of a write with fdatasync.
func syncTime(dir string) (time.Duration, error) {
	file, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	var times []time.Duration
	for range 101 {
		begun := time.Now()
		if _, err = file.Write(make([]byte, 4096)); err == nil {
			err = syscall.Fdatasync(int(file.Fd()))
		}
		if err != nil {
			break
		}
		times = append(times, time.Since(begun))
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return 0, err
	}
	slices.Sort(times)
	return times[len(times)/2].Round(10 * time.Microsecond), nil
}

func compare(common setup, dir string, without bool, out io.Writer) error {
	var columns []string
	all := map[string]figures{}
	for _, side := range []struct {
		name string
		setup
	}{
		{"client-go's indexer", setup{}},
		{"disk", setup{Disk: true, Path: filepath.Join(dir, "a.db")}},
		{"disk, SurviveProcess", setup{Disk: true, Process: true, Path: filepath.Join(dir, "b.db")}},
	} {
		if without && !side.Disk {
			continue
		}
		side.Objects, side.Size, side.List = common.Objects, common.Size, common.List
		got := figures{}
		if side.Disk {
			side.Short = true
			if err := run(side.setup, got); err != nil {
				return fmt.Errorf("%s: %w", side.name, err)
			}
			side.Short, side.Warm = false, true
		}
		if err := run(side.setup, got); err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		if side.Disk { // the lists need the room
			if err := os.Remove(side.Path); err != nil {
				return err
			}
		}
		columns, all[side.name] = append(columns, side.name), got
	}
	printTable(common, columns, all, out)
	return nil
}

// run starts a child, and adds its figures to got.
func run(s setup, got figures) error { return bulk.Run(childVariable, s, &got) }

func printTable(common setup, columns []string, all map[string]figures, out io.Writer) {
	how := "streamed"
	if common.List {
		how = "listed"
	}
	fmt.Fprintf(out, "\n## A store: %s objects, %s\n\n|", bulk.Thousands(common.Objects), how)
	for _, c := range columns {
		fmt.Fprintf(out, " | %s", c)
	}
	fmt.Fprintf(out, " |\n|---|")
	for range columns {
		fmt.Fprintf(out, "---:|")
	}
	fmt.Fprintln(out)
	for _, row := range rows {
		fmt.Fprintf(out, "| %s", row)
		for _, c := range columns {
			value := all[c][row]
			if value == "" {
				value = "–"
			}
			fmt.Fprintf(out, " | %s", value)
		}
		fmt.Fprintln(out, " |")
	}
}
