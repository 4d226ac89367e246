// Package probe is built into both operators of the comparison. It counts their reconciles,
// answers requests for their figures on standard input and output, and stops them when the input ends.
package probe

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/customcacheinformer/informer/internal/lab"
)

// Request is a question to an operator, which answers with a Reading.
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
	go p.answer()
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

func (p *probe[K]) answer() {
	err := lab.Answer(func(r Request) (Reading, error) {
		calls, keys := p.counted()
		for ; keys < r.Keys; calls, keys = p.counted() {
			time.Sleep(time.Millisecond)
		}
		reading := Reading{Reconciles: calls, CPU: lab.CPU().Seconds(), Peak: lab.Memory(lab.Peak), Anon: lab.Memory(lab.Anonymous)}
		if r.Heap {
			reading.Heap, _ = lab.Settled()
		}
		return reading, nil
	})
	if self, failed := os.FindProcess(os.Getpid()); err == nil && failed == nil {
		err = self.Signal(os.Interrupt) // the operator ends as if it was stopped
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
