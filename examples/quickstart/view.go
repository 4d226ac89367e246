package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// settle is how long the watchers may take to catch up at the end.
const settle = 30 * time.Second

// compare waits until each view is equal to the state of the reader, and writes a table of the
// results to out. It returns an error if a view still differs after half a minute or when ctx
// ends.
func compare(ctx context.Context, out io.Writer, state informer.Reader[*corev1.Pod], views ...*view) error {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	var table tabwriter.Writer
	table.Init(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(&table, "watcher\tadded\tupdated\tdeleted\tits view\tthe store\t")
	var differ error
	for _, v := range views {
		verdict := "equal"
		if !v.equals(ctx, state) {
			verdict = "DIFFERENT"
			differ = fmt.Errorf("watcher %s does not see what the store holds", v.name)
		}
		stored := 0
		for range state.All() {
			stored++
		}
		v.mu.Lock()
		fmt.Fprintf(&table, "%s\t%d\t%d\t%d\t%d objects\t%d objects\t%s\n", v.name,
			v.counts[informer.EventAdded], v.counts[informer.EventUpdated], v.counts[informer.EventDeleted], len(v.objects), stored, verdict)
		v.mu.Unlock()
	}
	fmt.Fprintln(out)
	if err := table.Flush(); err != nil {
		return err
	}
	return differ
}

// view is the state that one watcher knows from its events. Its methods may be called from any
// goroutine.
type view struct {
	name string // of the watcher

	mu      sync.Mutex // protects the fields below
	objects map[types.NamespacedName]*corev1.Pod
	counts  map[informer.EventType]int
	moved   chan struct{} // closed and replaced at each event
}

// newView returns an empty view for the watcher with this name.
func newView(name string) *view {
	return &view{
		name: name, objects: map[types.NamespacedName]*corev1.Pod{}, counts: map[informer.EventType]int{}, moved: make(chan struct{}),
	}
}

// see applies e to the view.
func (v *view) see(e informer.Event[*corev1.Pod]) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.counts[e.Type]++
	if e.Type == informer.EventDeleted {
		delete(v.objects, e.Key())
	} else {
		v.objects[e.Key()] = e.New
	}
	close(v.moved)
	v.moved = make(chan struct{})
}

// size returns the number of objects in the view.
func (v *view) size() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.objects)
}

// equals waits until the view is equal to the state. It returns false if ctx ends first.
func (v *view) equals(ctx context.Context, state informer.Reader[*corev1.Pod]) bool {
	for {
		v.mu.Lock()
		n, same := 0, true
		for key, obj := range state.All() {
			n++
			same = same && v.objects[key] == obj // compares pointers: watchers share objects with the store
		}
		same = same && n == len(v.objects)
		moved := v.moved
		v.mu.Unlock()
		if same {
			return true
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

// screen writes whole lines from many goroutines.
type screen struct {
	begin time.Time

	mu  sync.Mutex // protects out
	out io.Writer
}

func newScreen(out io.Writer) *screen {
	return &screen{begin: time.Now(), out: out}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

// line writes a line, after the time since the beginning.
func (s *screen) line(format string, args ...any) {
	fmt.Fprintf(s, "%6.2fs  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}
