package storetest

import (
	"context"
	"sync/atomic"
)

// countdown is a ctx that ends after a number of calls of Err and Done.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

// endsWhenAskedFor returns a ctx that ends after n calls of Err and Done. So it ends in
// the middle of an operation, without a clock.
func endsWhenAskedFor(parent context.Context, n int) context.Context {
	ctx := &countdown{}
	ctx.Context, ctx.cancel = context.WithCancel(parent)
	ctx.left.Store(int64(n))
	return ctx
}

func (c *countdown) ask() {
	if c.left.Add(-1) < 0 {
		c.cancel()
	}
}

func (c *countdown) Err() error {
	c.ask()
	return c.Context.Err()
}

func (c *countdown) Done() <-chan struct{} {
	c.ask()
	return c.Context.Done()
}
