package storetest

import (
	"context"
	"sync/atomic"
)

// countdown is a ctx that ends when it has been asked so many times whether it has.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

// endsWhenAskedFor returns a ctx that ends when it was asked n times: in the middle of
// something, without a clock.
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
