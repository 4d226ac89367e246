package shards

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// These are causes (context.Cause) of the end of a call's ctx.
var (
	// ErrSessionLost says that the replica could not renew its session in time, so another replica
	// may have its buckets.
	ErrSessionLost = errors.New("shards: the session is lost")
	// ErrDrained says that the bucket moves to another replica, and that the call has lasted longer
	// than Options.DrainTimeout since then.
	ErrDrained = errors.New("shards: the bucket moves to another replica")
)

// phase is how far a replica is with a bucket.
type phase uint8

const (
	taking    phase = iota // the request for its Lease is under way
	catching               // the workers' caches may be older than those of the last holder
	open                   // calls may be made
	releasing              // no call begins; the bucket is let go when all have returned
)

// holding is a bucket that a session has. The set's lock protects it.
type holding struct {
	session *session
	bucket  int
	phase   phase
	lease   *coordinationv1.Lease // as it was last written; nil while taking
	token   int32                 // the fencing token; does not change once the phase is open
	since   time.Time             // the begin of the phase
	calls   int                   // that are under way
	before  leases.Past           // what the last holder had seen
	known   leases.Versions       // what each worker knew when the phase became open, nil before
	idle    chan struct{}         // closed when releasing and no call is under way
	ctx     context.Context       // of the calls: it ends with the session, or when a release cancels them
	cancel  context.CancelCauseFunc
}

// begin moves h to another phase.
func (h *holding) begin(p phase) {
	h.phase, h.since = p, time.Now()
	if p == releasing && h.calls == 0 {
		close(h.idle)
	}
}

// done notes that a call has returned.
func (h *holding) done() {
	s := h.session.set
	s.mu.Lock()
	defer s.mu.Unlock()
	h.calls--
	if h.calls == 0 && h.phase == releasing {
		close(h.idle)
	}
	if h.calls == 0 && h.session.lost {
		s.poke()
	}
}

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
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.openLocked(bucket)
	if h == nil {
		return nil, nil, false
	}
	h.calls++
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	return &callContext{ctx, h, cancel}, func() { stop(); cancel(nil); h.done() }, true
}

// Has reports whether calls for keys of the bucket may begin in this replica. It does not block.
func (s *Set) Has(bucket int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked(bucket) != nil
}

// openLocked returns the holding of a bucket if a call may begin.
func (s *Set) openLocked(bucket int) *holding {
	if s.session == nil || s.session.expired() {
		return nil
	}
	if h := s.session.holdings[bucket]; h != nil && h.phase == open {
		return h
	}
	return nil
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
