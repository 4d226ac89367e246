//go:build linux

// Command measure measures a store of many objects on a Valkey or Redis server: the memory of the server
// and of the processes, starts, and reads and writes a second.
//
//	go run ./measure -objects 1000000
//
// It starts the server itself, with an append-only file, on the same machine. The figures of each start come
// from a process of its own. The objects are Pods of 2 KiB as protobuf, from a source inside the
// process, so that no API server is needed. RESULTS.md is such a report.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	client "github.com/valkey-io/valkey-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/lab"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/valkey"
)

type setup struct {
	Objects int
	During  time.Duration // of each kind of read and write
	Server  string        // its address
	Step    string
}

// The steps, each in a process of its own.
const (
	cold   = "writer, cold start"
	warm   = "writer, warm start"
	use    = "reads and writes"
	reader = "reader, in memory"
)

var steps = []string{cold, warm, use, reader}

type row struct{ Name, Value string }

var (
	roles    = lab.Roles{"store": lab.Once(setup.measure)}
	identity = store.Identity{Cluster: "measured", Resource: "pods"}
)

func main() {
	var s setup
	flag.IntVar(&s.Objects, "objects", 100_000, "how many objects there are")
	// The server writes its file again now and then, which slows it down for a second or two.
	flag.DurationVar(&s.During, "for", 10*time.Second, "how long each kind of read and write is measured")
	lab.Main(roles, func(ctx context.Context, out io.Writer) error {
		if err := lab.Positive("objects", "for"); err != nil {
			return err
		}
		return s.report(ctx, out)
	})
}

// report measures all steps.
func (s setup) report(ctx context.Context, out io.Writer) (err error) {
	srv, err := start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	s.Server = srv.addr
	before := lab.Load()
	var rows []row
	for _, s.Step = range steps {
		lab.Progress("%s", s.Step)
		got, err := srv.run(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Step, err)
		}
		rows = append(rows, got...)
	}
	fmt.Fprintf(out, `# Many objects on a server

%s Pods of 2048 bytes as protobuf on %s, with appendonly yes and appendfsync everysec. All processes are on one machine
with %d processors, whose load was %s at the beginning and %s at the end. "Memory" of a process is anonymous memory.

`, lab.Thousands(s.Objects), srv.version, runtime.NumCPU(), before, lab.Load())
	lab.Header(out, 1, "", "")
	for _, r := range rows {
		lab.Cells(out, r.Name, r.Value)
	}
	return nil
}

func connect(addr string) (client.Client, error) {
	return client.NewClient(client.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
}

// measure does the work of a child.
func (s setup) measure() ([]row, error) {
	ctx := context.Background()
	c, err := connect(s.Server)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if s.Step == reader {
		source, err := valkey.NewSource(c, &corev1.Pod{}, identity)
		if err != nil {
			return nil, err
		}
		return s.start(ctx, source, informer.Options[lab.Pod]{})
	}
	on, err := valkey.Open(ctx, c, &corev1.Pod{}, valkey.Options{Identity: identity})
	if err != nil {
		return nil, err
	}
	if s.Step == use {
		return s.use(ctx, on)
	}
	return s.start(ctx, lab.Source{Objects: s.Objects}.ListWatch(), informer.Options[lab.Pod]{Durable: on, PageSize: 500})
}

// start measures the start of an informer with one watcher.
func (s setup) start(ctx context.Context, source cache.ListerWatcher, opts informer.Options[lab.Pod]) ([]row, error) {
	launch := lab.NewLaunch()
	_, stop, err := launch.Run(ctx, source, opts, s.Objects)
	if err != nil {
		return nil, err
	}
	return []row{
		{"until Synced", lab.Seconds(launch.Synced)},
		{"until the watcher has all", lab.Seconds(launch.All)},
		{"CPU", lab.Seconds(launch.CPU)},
		{"peak of memory", lab.Mebibytes(launch.Peak)},
		{"memory afterwards", lab.Mebibytes(lab.Returned())},
	}, stop()
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
		_, exists, e := on.Get(ctx, lab.Key(rand.IntN(s.Objects)))
		if e == nil && !exists {
			e = errors.New("an object is not there")
		}
		note(e)
	}
	speed := func(name string, n int, f func()) { rows = append(rows, row{name, lab.PerSecond(s.During, n, f)}) }
	speed("gets a second", 1, get)
	const at = 100
	speed("gets a second, 100 callers", at*10, func() {
		_ = lab.Divide(at*10, at, func(int) error { get(); return nil })
	})
	const page = 500
	speed("objects of Scan a second, 500 at a time", min(page, s.Objects), func() {
		found, e := on.Scan(ctx, lab.Key(rand.IntN(max(1, s.Objects-page))), page)
		if e == nil && len(found) != min(page, s.Objects-1) {
			e = fmt.Errorf("%d objects are found", len(found))
		}
		note(e)
	})
	version := lab.LastVersion
	for _, n := range []int{1, 100, 1000} {
		speed("writes a second, "+strconv.Itoa(n)+" in an Apply", n, func() {
			changes := make([]informer.Change, n)
			for i := range changes {
				version++ // as an API server's versions do, so that each change is in the log
				p := lab.NewPod(rand.IntN(s.Objects))
				p.ResourceVersion = strconv.Itoa(version)
				changes[i].Entry = informer.Entry{Key: p.Namespace + "/" + p.Name, Object: p}
			}
			note(on.Apply(ctx, changes, strconv.Itoa(version)))
		})
	}
	if err != nil {
		return nil, err
	}
	st, err := on.Status(ctx)
	return append(rows, row{"changes in the log afterwards", lab.Thousands(int(st.Log))}), err
}
