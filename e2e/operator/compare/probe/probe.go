// Package probe is in both operators that are compared: it counts their reconciles, and
// answers, on standard input and output, how they are doing.
package probe

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
)

// Request is a line to an operator, which answers each with a Reading.
type Request struct {
	Keys int  // answer once that many different keys have been reconciled
	Heap bool // collect garbage, and say what is left
}

// Reading is how an operator is doing. CPU is in seconds since it was started, memory in
// bytes.
type Reading struct {
	Reconciles int
	CPU        float64
	Peak       float64 // most memory that was ever resident
	Heap       float64 // what is left of it without garbage, if that was asked for
}

// Count returns a reconcile function that does what the given one does, counted, and
// answers requests from now on. It is to be called once.
func Count[K comparable, R any](reconcile func(context.Context, K) (R, error)) func(context.Context, K) (R, error) {
	p := &probe[K]{keys: map[K]bool{}}
	go p.answer(os.Stdin, os.Stdout)
	return func(ctx context.Context, key K) (R, error) {
		defer p.count(key)
		return reconcile(ctx, key)
	}
}

type probe[K comparable] struct {
	mu    sync.Mutex // protects the rest
	calls int
	keys  map[K]bool // that have been reconciled
}

func (p *probe[K]) count(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	p.keys[key] = true
}

func (p *probe[K]) counted() (calls, keys int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls, len(p.keys)
}

func (p *probe[K]) answer(in io.Reader, out io.Writer) {
	lines, replies := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		var r Request
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			return
		}
		calls, keys := p.counted()
		for ; keys < r.Keys; calls, keys = p.counted() {
			time.Sleep(time.Millisecond)
		}
		reading := Reading{Reconciles: calls, CPU: cpuTime().Seconds(), Peak: peakMemory()}
		if r.Heap {
			reading.Heap = liveHeap()
		}
		if replies.Encode(reading) != nil {
			return
		}
	}
}

// liveHeap returns what is left of the heap when the garbage is gone.
func liveHeap() float64 {
	for range 3 { // the first leaves what is in pools, and what has a finalizer
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
