// Package demo holds the code that the quickstart and the end-to-end demo share: three
// watchers of different habits over one informer, and a comparison of their views with the
// store.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
)

// settle is how long the watchers may take at the end to catch up, and how long the informer
// may take at least to sync.
const settle = 30 * time.Second

// Run adds inf to group and runs group for d with three watchers: a quick one, one that takes
// its time over each event, and one that joins halfway. It writes their events to out, and in
// the end a table that compares the view of each watcher with the store. It returns an error
// if the informer does not sync, or if a view differs from the store. It blocks until the
// group has stopped.
func Run[T informer.Object](ctx context.Context, out io.Writer, group *informer.Group, inf *informer.CustomCacheInformer[T], d time.Duration) (err error) {
	screen := &screen{out: out, begin: time.Now(), over: make(chan struct{})}
	quick := newWatcher[T](screen, "quick", 0)
	slow := newWatcher[T](screen, "slow", 250*time.Millisecond)
	late := newWatcher[T](screen, "late", 0)
	fmt.Fprintf(screen, "Three watchers follow one informer for %v: a quick one, one that takes %v over each\nchange, and one that joins later. Nobody waits for the slow one.\n\n", d, slow.pause)
	for _, w := range []*watcher[T]{quick, slow} {
		if err := w.join(inf); err != nil {
			return err
		}
	}

	if err := group.Add(inf); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- group.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-stopped)
	}()

	first, stopWaiting := context.WithTimeout(ctx, max(d, settle))
	defer stopWaiting()
	if err := inf.WaitForSync(first); err != nil {
		return err
	}
	sleep(ctx, d/2)
	if err := late.join(inf); err != nil {
		return err
	}
	sleep(ctx, d/2)
	screen.line("no more dawdling; everyone catches up")
	close(screen.over)
	return compare(ctx, screen, inf, quick, slow, late)
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// compare waits until the view of each watcher equals the store, and prints a table of the
// results.
func compare[T informer.Object](ctx context.Context, screen *screen, inf *informer.CustomCacheInformer[T], watchers ...*watcher[T]) error {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	var table tabwriter.Writer
	table.Init(screen, 0, 0, 3, ' ', 0)
	fmt.Fprintln(&table, "watcher\tadded\tupdated\tdeleted\tits view\tthe store\t")
	var differ error
	for _, w := range watchers {
		verdict := "equal"
		if !w.equals(ctx, inf) {
			verdict = "DIFFERENT"
			differ = fmt.Errorf("watcher %s does not see what the store holds", w.name)
		}
		stored := 0
		for range inf.All() {
			stored++
		}
		fmt.Fprintf(&table, "%s\t%d\t%d\t%d\t%d objects\t%d objects\t%s\n", w.name,
			w.counts[informer.EventAdded], w.counts[informer.EventUpdated], w.counts[informer.EventDeleted], len(w.view), stored, verdict)
	}
	fmt.Fprintln(screen)
	if err := table.Flush(); err != nil {
		return err
	}
	return differ
}

// watcher builds a view of its own from its events.
type watcher[T informer.Object] struct {
	screen *screen
	name   string
	pause  time.Duration // wait per change

	mu     sync.Mutex // protects the fields below
	view   map[types.NamespacedName]T
	counts map[informer.EventType]int
	moved  chan struct{} // closed and replaced at each event
}

func newWatcher[T informer.Object](screen *screen, name string, pause time.Duration) *watcher[T] {
	return &watcher[T]{
		screen: screen, name: name, pause: pause,
		view: map[types.NamespacedName]T{}, counts: map[informer.EventType]int{}, moved: make(chan struct{}),
	}
}

func (w *watcher[T]) join(inf *informer.CustomCacheInformer[T]) error {
	w.screen.line("%-5s  joins", w.name)
	_, err := inf.AddWatcher(informer.WatcherFunc[T](w.see), informer.WatcherOptions{
		Name: w.name,
		OnSynced: func(context.Context) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.screen.line("%-5s  has seen the initial state: %d objects", w.name, len(w.view))
		},
	})
	return err
}

func (w *watcher[T]) see(ctx context.Context, e informer.Event[T]) error {
	if e.Origin != informer.OriginInitial {
		w.dawdle(ctx)
		w.screen.line("%-5s  %-7s  %s", w.name, e.Type, e.Key())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[e.Type]++
	if e.Type == informer.EventDeleted {
		delete(w.view, e.Key())
	} else {
		w.view[e.Key()] = e.New
	}
	close(w.moved)
	w.moved = make(chan struct{})
	return nil
}

// dawdle waits for the watcher's pause, or until the end of the show.
func (w *watcher[T]) dawdle(ctx context.Context) {
	select {
	case <-time.After(w.pause):
	case <-w.screen.over:
	case <-ctx.Done():
	}
}

// equals waits until the watcher's view equals the store. It returns false if ctx ends first.
func (w *watcher[T]) equals(ctx context.Context, inf *informer.CustomCacheInformer[T]) bool {
	for {
		w.mu.Lock()
		n, same := 0, true
		for key, obj := range inf.All() {
			n++
			same = same && w.view[key] == obj // compares pointers: watchers share objects with the store
		}
		same = same && n == len(w.view)
		moved := w.moved
		w.mu.Unlock()
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
	over  chan struct{} // closed when the show is over

	mu  sync.Mutex // protects out
	out io.Writer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *screen) line(format string, args ...any) {
	fmt.Fprintf(s, "%6.2fs  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}
