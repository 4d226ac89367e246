package main

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// These are the memory figures that are read from the runtime.
const (
	heapObjects = "/memory/classes/heap/objects:bytes" // live objects, and dead ones that are not swept yet
	heapLive    = "/gc/heap/live:bytes"                // live objects as of the latest collection
	stackMemory = "/memory/classes/heap/stacks:bytes"
)

// bytesOf reads one memory figure.
func bytesOf(metric string) float64 {
	s := []metrics.Sample{{Name: metric}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64())
}

// settled collects garbage and returns the live heap and the stacks. One collection shrinks
// stacks, and frees those of ended goroutines. Objects held by finalizers and pools are freed
// by the collections after it, so settled runs three.
func settled() (heap, stacks float64) {
	for range 3 {
		runtime.GC()
	}
	return bytesOf(heapObjects), bytesOf(stackMemory)
}

// sampling is the pause between two readings of a figure whose peak is wanted.
const sampling = 200 * time.Microsecond

// watchPeak reads a figure again and again until stop is called. stop returns the highest
// value.
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
