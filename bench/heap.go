package main

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// What is read of the memory.
const (
	heapObjects = "/memory/classes/heap/objects:bytes" // live, and dead but not swept yet
	heapLive    = "/gc/heap/live:bytes"                // what the latest collection found
	stackMemory = "/memory/classes/heap/stacks:bytes"
)

// bytesOf reads one figure of the memory.
func bytesOf(metric string) float64 {
	s := []metrics.Sample{{Name: metric}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64())
}

// settled collects garbage until nothing more comes of it, and returns the live heap
// and the stacks. One collection shrinks stacks and frees those of goroutines that have
// ended; what finalizers and pools held goes with those after it.
func settled() (heap, stacks float64) {
	for range 3 {
		runtime.GC()
	}
	return bytesOf(heapObjects), bytesOf(stackMemory)
}

// sampling is how often the peak of a figure is looked for.
const sampling = 200 * time.Microsecond

// watchPeak looks at a figure until the function that it returns is called, which
// returns the highest that it has seen.
func watchPeak(metric string) (stop func() float64) {
	var looking sync.WaitGroup
	var peak float64
	done := make(chan struct{})
	looking.Go(func() {
		for {
			peak = max(peak, bytesOf(metric))
			select {
			case <-done:
				return
			case <-time.After(sampling):
			}
		}
	})
	return func() float64 {
		close(done)
		looking.Wait()
		return max(peak, bytesOf(metric))
	}
}
