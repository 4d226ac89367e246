// Package turns limits how many callers may do something at the same time, first come, first served. A
// turn that makes no progress passes to the next caller, so that a caller that hangs does not hold up the others.
package turns

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Idle is how long a turn lasts without progress.
const Idle = 5 * time.Second

// Limit limits the number of turns at a time. A nil Limit sets no limit. Its methods may be called from
// any goroutine.
type Limit struct {
	n int

	mu      sync.Mutex // protects the rest, and the fields of each Turn
	taken   int
	waiting []chan struct{} // closed when the turn begins; in the order in which they came
}

// New returns a limit of n turns at a time, or nil if n is 0 or less.
func New(n int) *Limit {
	if n <= 0 {
		return nil
	}
	return &Limit{n: n}
}

// Acquire waits for a turn. It returns the error of ctx if ctx ends first. A nil Limit returns a nil Turn
// at once.
func (l *Limit) Acquire(ctx context.Context) (*Turn, error) {
	if l == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken < l.n { // then no list waits
		l.taken++
		return l.beginLocked(), nil
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	l.mu.Unlock()
	select {
	case <-turn:
	case <-ctx.Done():
	}
	l.mu.Lock()
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return nil, ctx.Err()
	}
	return l.beginLocked(), nil // also if ctx is done at the same time
}

func (l *Limit) beginLocked() *Turn {
	t := &Turn{limit: l, begun: time.Now()}
	t.ends.Store(int64(Idle))
	t.timer = time.AfterFunc(Idle, t.check)
	return t
}

// A Turn ends with Release, or when it makes no progress for Idle or the time that Allow sets. The methods
// of a nil Turn do nothing. The methods do not block, and may be called from any goroutine, even after the
// end of the turn.
type Turn struct {
	limit *Limit
	begun time.Time
	ends  atomic.Int64 // how long after begun it ends without progress

	timer *time.Timer // protected by limit.mu, as over is
	over  bool
}

// Progress records progress. Without further progress, the turn ends after Idle.
func (t *Turn) Progress() { t.Allow(Idle) }

// Allow records progress. Without further progress, the turn ends after d.
func (t *Turn) Allow(d time.Duration) {
	if t == nil {
		return
	}
	ends := int64(time.Since(t.begun) + d)
	if t.ends.Swap(ends) <= ends { // the usual case, kept cheap: the timer looks again
		return
	}
	t.limit.mu.Lock()
	defer t.limit.mu.Unlock()
	if !t.over {
		t.timer.Reset(d)
	}
}

// Release ends the turn, unless it is over.
func (t *Turn) Release() {
	if t == nil {
		return
	}
	t.limit.mu.Lock()
	defer t.limit.mu.Unlock()
	t.endLocked()
}

// check ends the turn if there was no progress.
func (t *Turn) check() {
	t.limit.mu.Lock()
	defer t.limit.mu.Unlock()
	if left := time.Duration(t.ends.Load()) - time.Since(t.begun); left <= 0 {
		t.endLocked()
	} else if !t.over {
		t.timer.Reset(left)
	}
}

// endLocked ends the turn, and passes it on to the caller that has waited longest.
func (t *Turn) endLocked() {
	if t.over {
		return
	}
	t.over = true
	t.timer.Stop()
	l := t.limit
	if len(l.waiting) == 0 {
		l.taken--
		return
	}
	close(l.waiting[0])
	l.waiting = slices.Delete(l.waiting, 0, 1)
}
