package source

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/customcacheinformer/informer/internal/turns"
)

// bodyTime is for how long a list keeps its turn after the first byte of an answer whose body client-go reads:
// nothing shows how that continues. An API server ends a request after that time.
const bodyTime = time.Minute

// turn is the turn of a source for its list, or for a stream of the first state. The source takes it before
// the request, and keeps it until the list is in the sink, has failed, or makes no progress.
type turn struct {
	atomic.Pointer[turns.Turn] // of the last list; nil if there is no limit

	waits atomic.Bool
}

func (t *turn) release() { t.Swap(nil).Release() }

// take waits for the turn of the next list.
func (t *turn) take(ctx context.Context, limit *turns.Limit) error {
	t.release() // of a list that begins again
	t.waits.Store(true)
	defer t.waits.Store(false)
	taken, err := limit.Acquire(ctx)
	t.Store(taken)
	return err
}
