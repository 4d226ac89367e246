// Package probe is built into both operators of the comparison. It counts their reconciles,
// and answers requests for their figures on standard input and output.
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

// Request is a line sent to an operator. The operator answers each Request with a Reading.
type Request struct {
	Keys int  // answer once this many different keys have been reconciled
	Heap bool // collect garbage first, and report the live heap
}

// Reading holds the figures of an operator. CPU is in seconds since its start, memory is in
// bytes.
type Reading struct {
	Reconciles int
	CPU        float64
	Peak       float64 // most memory that was ever resident
	Anon       float64 // anonymous memory that is resident now
	Heap       float64 // live heap without garbage, if the Request asked for it
}

// Count returns a reconcile function that counts its calls and calls the given one. It also
// starts to answer requests. Call it once.
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
	keys  map[K]bool // keys that have been reconciled
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
		reading := Reading{Reconciles: calls, CPU: cpuTime().Seconds()}
		reading.Peak, reading.Anon = memory()
		if r.Heap {
			reading.Heap = liveHeap()
		}
		if replies.Encode(reading) != nil {
			return
		}
	}
}

// liveHeap returns the size of the heap without garbage.
func liveHeap() float64 {
	for range 3 { // one collection leaves objects in pools and objects with finalizers
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
