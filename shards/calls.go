package shards

import (
	"context"
	"fmt"
	"slices"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/sharding"
)

// door is the set as the controllers of package enqueue see it. It implements [sharding.Set], which
// describes its methods. Programs do not see them.
type door struct{ *Set }

func (s door) ByNamespace() bool { return s.opts.ByNamespace }

func (s door) Started() <-chan struct{} { return s.started }

func (s door) Bucket(key string) int { return s.bucket(key) }

func (s door) Join(name string, w sharding.Worker) error {
	keys := w.Keys()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case slices.ContainsFunc(s.workers, func(other worker) bool { return other.name == name }):
		return fmt.Errorf("shards: set %s: another controller has the name %q", s.opts.Name, name)
	case s.ctx != nil:
		return fmt.Errorf("shards: set %s: the controller %q is too late: %w", s.opts.Name, name, informer.ErrAlreadyRun)
	}
	s.workers = append(s.workers, worker{w, name, keys})
	return nil
}

// Enter begins a call for a key of the bucket, or returns false if this replica may not work on the bucket.
// The ctx of the call ends with errSessionLost or errDrained as its cause when the replica no longer may.
// [Token] returns the fencing token of the ctx. The caller must call done after the call.
func (s door) Enter(ctx context.Context, bucket int) (call context.Context, done func(), ok bool) {
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

// Has reports whether calls for keys of the bucket may begin in this replica.
func (s door) Has(bucket int) bool {
	n := s.current()
	return n != nil && n.has(bucket)
}

// current returns the session, or nil if there is none.
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
		c.cancel(errSessionLost)
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

// Token returns the bucket and the fencing token of a call of reconcile. ctx is the ctx of the call or one
// derived from it; otherwise ok is false. The token of a bucket rises each time a replica takes the bucket.
// A system that remembers the highest token of each bucket, and refuses lower ones, accepts nothing from a
// replica that has lost the bucket and does not know it yet.
func Token(ctx context.Context) (bucket int, token int64, ok bool) {
	h, ok := ctx.Value(tokenKey{}).(*holding)
	if !ok {
		return 0, 0, false
	}
	return h.bucket, int64(h.token), true
}
