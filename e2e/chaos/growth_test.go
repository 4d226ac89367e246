package chaos_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/customcacheinformer/informer/internal/lab"
)

// sample holds the figures of one moment.
type sample struct {
	at                              time.Duration
	joins                           int64
	goroutines, heap, files, series int
}

// sample takes a sample while no watcher joins.
func (s *soak) sample(at time.Duration) sample {
	s.pause.Lock()
	defer s.pause.Unlock()
	// The second collection frees objects for which the first one only ran finalizers, and
	// objects that pools kept.
	runtime.GC()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		s.Log(err)
	}
	return sample{
		at: at, joins: s.joins.Load(), goroutines: runtime.NumGoroutine(), heap: int(memory.HeapAlloc),
		files: len(files), series: s.series(),
	}
}

// These limits are by how much the last quarter may exceed the second without being a leak.
// Goroutines and files belong to requests, and to timers of client-go that end by themselves.
// The heap holds the objects, which may be more by then, and events on their way to watchers.
const (
	anyGoroutines = 20
	anyHeap       = 768 << 10
	anyFiles      = 10
	anySeries     = 10
	heapPerJoin   = 400 // bytes; less than half of the leak that the test must find
)

// growth returns an error that names each figure that grew too much from the second quarter to
// the last.
func growth(all []sample) error {
	quarter := len(all) / 4
	second, last := all[quarter:2*quarter], all[3*quarter:]
	more := func(of func(sample) int) int {
		figure := func(s sample) float64 { return float64(of(s)) }
		return int(lab.MedianOf(last, figure) - lab.MedianOf(second, figure))
	}
	joins := more(func(s sample) int { return int(s.joins) })
	var grown []error
	check := func(what string, allowed int, of func(sample) int) {
		if n := more(of); n > allowed {
			grown = append(grown, fmt.Errorf("%s: %d more in the last quarter than in the second, after %d joins; at most %d are allowed", what, n, joins, allowed))
		}
	}
	check("goroutines", anyGoroutines+joins/100, func(s sample) int { return s.goroutines })
	check("bytes of live heap", anyHeap+joins*heapPerJoin, func(s sample) int { return s.heap })
	check("open files", anyFiles, func(s sample) int { return s.files })
	check("metrics", anySeries, func(s sample) int { return s.series })
	return errors.Join(grown...)
}
