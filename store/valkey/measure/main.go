//go:build linux

// Command measure measures a store of many objects on a Valkey or Redis server: the memory of the server
// and of the processes, starts, and reads and writes a second.
//
//	go run ./measure -objects 1000000
//
// It starts the server itself, with an append-only file, on the same machine. The figures of each start come
// from a process of its own. The objects are Pods of a given size as protobuf, from a source inside the
// process, so that no API server is needed. RESULTS.md is such a report.
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
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/customcacheinformer/informer/internal/bulk"
)

// setup holds the parameters of a child.
type setup struct {
	Objects, Size int
	Server        string // its address
	Role          string
	During        time.Duration // of each kind of read and write
}

// The roles of children.
const (
	cold   = "writer, cold start"
	warm   = "writer, warm start"
	use    = "reads and writes"
	reader = "reader, in memory"
)

var allRoles = []string{cold, warm, use, reader}

// row is a figure with its name.
type row struct{ Name, Value string }

// childVariable is the environment variable with the setup of a child.
const childVariable = "MEASURE_CHILD"

func main() {
	log.SetFlags(0)
	if text := os.Getenv(childVariable); text != "" {
		child(text)
		return
	}
	objects := flag.Int("objects", 100_000, "how many objects there are")
	size := flag.Int("size", 2048, "the size of an object as protobuf, in bytes")
	dir := flag.String("dir", "", "where the server's files are; a new temporary directory by default")
	without := flag.Bool("without-reader", false, "leave the reader out, which takes several KiB of memory per object")
	// The server writes its file again now and then, which slows it down for a second or two.
	during := flag.Duration("for", 10*time.Second, "how long each kind of read and write is measured")
	file := flag.String("write", "", "also write the report to this file")
	flag.Parse()
	if *objects < 1 || *size < 1 || *during <= 0 {
		log.Fatal("-objects, -size and -for must be more than 0")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var report strings.Builder
	roles := allRoles
	if *without {
		roles = roles[:len(roles)-1]
	}
	err := compare(ctx, setup{Objects: *objects, Size: *size, During: *during}, roles, *dir, io.MultiWriter(os.Stdout, &report))
	stop()
	if err == nil && *file != "" {
		err = os.WriteFile(*file, []byte(report.String()), 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// child measures a setup, which is JSON, and prints the figures.
func child(text string) {
	var s setup
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		log.Fatal(err)
	}
	got, err := s.measure(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
		log.Fatal(err)
	}
}

func compare(ctx context.Context, s setup, roles []string, dir string, out io.Writer) (err error) {
	srv, err := start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	s.Server = srv.addr
	before, err := bulk.Load()
	if err != nil {
		return err
	}
	var rows []row
	for _, role := range roles {
		s.Role = role
		got, err := srv.run(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		rows = append(rows, got...)
	}
	after, err := bulk.Load()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `# Many objects on a server

%s Pods of %d bytes as protobuf on %s, with appendonly yes and appendfsync everysec. All processes are on one machine
with %d processors, whose load was %s at the beginning and %s at the end. "Memory" of a process is anonymous memory.

| | |
|---|---:|
`, bulk.Thousands(s.Objects), s.Size, srv.version, runtime.NumCPU(), before, after)
	for _, r := range rows {
		if err == nil {
			_, err = fmt.Fprintf(out, "| %s | %s |\n", r.Name, r.Value)
		}
	}
	return err
}
