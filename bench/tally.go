package main

import (
	"context"
	"sync/atomic"

	"github.com/customcacheinformer/informer"
)

// tally knows when each of several watchers has been called often enough. It counts calls,
// because the last event of a stream need not be the last to arrive: DeltaFIFO combines the
// waiting events of one object.
type tally struct {
	left atomic.Int64
	done chan struct{}
}

func newTally(watchers int) *tally {
	t := &tally{done: make(chan struct{})}
	t.left.Store(int64(watchers))
	return t
}

// one reports that one of the watchers has had everything.
func (t *tally) one() {
	if t.left.Add(-1) == 0 {
		close(t.done)
	}
}

func (t *tally) wait(ctx context.Context) error {
	return await(ctx, t.done, "the watchers have not been called for everything")
}

// count returns a handler that only counts its calls.
func count[T informer.Object](t *tally, calls int) func(T) {
	c := &counter{left: calls}
	return func(T) {
		if c.left--; c.left == 0 {
			t.one()
		}
	}
}

// counter is as large as two cache lines. If it were smaller, watchers on different cores
// would wait for each other's counters, and that would be a good part of the cost of an event.
type counter struct {
	left int
	_    [120]byte
}
