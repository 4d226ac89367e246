package source

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/customcacheinformer/informer/internal/turns"
)

// bodyTime is how long a list keeps its turn after the first byte of an answer whose body client-go reads.
// Nothing shows the progress of such a list. An API server ends a request after the same time.
const bodyTime = time.Minute

// turn is the turn of a source for a list or a stream of the first state. The source takes it before the
// request, and keeps it until the list is in the sink, has failed, or makes no progress.
type turn struct {
	atomic.Pointer[turns.Turn] // of the last list; nil if there is no limit

	waits atomic.Bool
}

func (t *turn) release() { t.Swap(nil).Release() }

// take waits for the turn of the next list. It returns the error of ctx if ctx ends first.
func (t *turn) take(ctx context.Context, limit *turns.Limit) error {
	t.release() // of a list that begins again
	t.waits.Store(true)
	defer t.waits.Store(false)
	taken, err := limit.Acquire(ctx)
	t.Store(taken)
	return err
}
