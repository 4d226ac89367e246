package main

import (
	"context"
	"sync/atomic"

	"github.com/customcacheinformer/informer"
)

// tally knows when each of several watchers has been called often enough. Calls
// are counted, because the last event of a stream need not be the last to arrive:
// DeltaFIFO takes the waiting events of one object together.
type tally struct {
	left atomic.Int64
	done chan struct{}
}

func newTally(watchers int) *tally {
	t := &tally{done: make(chan struct{})}
	t.left.Store(int64(watchers))
	return t
}

// one says that one of the watchers has had everything.
func (t *tally) one() {
	if t.left.Add(-1) == 0 {
		close(t.done)
	}
}

func (t *tally) wait(ctx context.Context) error {
	return await(ctx, t.done, "the watchers have not been called for everything")
}

// count returns a handler that does nothing but count its calls.
func count[T informer.Object](t *tally, calls int) func(T) {
	c := &counter{left: calls}
	return func(T) {
		if c.left--; c.left == 0 {
			t.one()
		}
	}
}

// counter is as large as two cache lines, or watchers on different cores would wait for
// each other's counters, which would be a good part of what an event costs them.
type counter struct {
	left int
	_    [120]byte
}
