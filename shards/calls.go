package shards

import "context"

// Enter begins a call for a key of a bucket. It returns false if the bucket is not this replica's,
// or not yet: then the caller drops the key, because the worker that gets the bucket queues all of
// its keys. Otherwise the caller makes the call with the ctx that Enter returns, and calls done when
// the call has returned. Enter does not block.
//
// The ctx ends with the given one, and when this replica may no longer work on the bucket, with
// [ErrSessionLost] or [ErrDrained] as its cause. If the process was stopped for a while, such as by
// SIGSTOP, the first look at Err after it goes on shows that the session has ended. [Token] returns
// the fencing token of the ctx.
func (s *Set) Enter(ctx context.Context, bucket int) (call context.Context, done func(), ok bool) {
	n := s.current()
	if n == nil {
		return nil, nil, false
	}
	h := n.enter(bucket)
	if h == nil {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	return &callContext{ctx, h, cancel}, func() {
		stop()
		cancel(nil)
		if h.done() {
			s.poke()
		}
	}, true
}

// Has reports whether calls for keys of the bucket may begin in this replica. It does not block.
func (s *Set) Has(bucket int) bool {
	n := s.current()
	return n != nil && n.has(bucket)
}

// current returns the session, nil if there is none.
func (s *Set) current() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// callContext is the ctx of a call. Its Err looks at the clock, because after a pause of the whole
// process the timer that ends the session may fire too late.
type callContext struct {
	context.Context
	holding *holding
	cancel  context.CancelCauseFunc
}

func (c *callContext) Err() error {
	if c.holding.session.expired() {
		c.cancel(ErrSessionLost)
	}
	return c.Context.Err()
}

type tokenKey struct{}

func (c *callContext) Value(key any) any {
	if key == (tokenKey{}) {
		return c.holding
	}
	return c.Context.Value(key)
}

// Token returns the bucket of a call and its fencing token, from the ctx of the call or one that was
// made from it. The token of a bucket is higher each time another replica gets the bucket. A system
// that remembers the highest token of each bucket, and refuses lower ones, takes nothing from a
// replica that has lost the bucket and does not know it yet. ok is false if ctx is not that of a
// call.
func Token(ctx context.Context) (bucket int, token int64, ok bool) {
	h, ok := ctx.Value(tokenKey{}).(*holding)
	if !ok {
		return 0, 0, false
	}
	return h.bucket, int64(h.token), true
}
