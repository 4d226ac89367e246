package stopwatch

import (
	"sync"
	"sync/atomic"
	"time"
)

// HungCall is how long a call into the user's code (a store, a source or a watcher) may
// take before the informer names it.
const HungCall = 10 * time.Second

// Call records the operation that is under way, so that an operation that hangs can be named.
// Only one goroutine may call Begin and End; any goroutine may call the other methods. None of
// them blocks. A Call must not be copied.
type Call struct {
	clock Stopwatch

	since atomic.Int64 // 0 between operations

	mu      sync.Mutex // protects the rest
	op, key string
}

// NewCall returns a Call that measures with clock. No operation is under way.
func NewCall(clock Stopwatch) *Call { return &Call{clock: clock} }

// Begin records that an operation begins. now is the time of the clock. key may be "".
func (c *Call) Begin(op, key string, now time.Duration) {
	c.mu.Lock()
	c.op, c.key = op, key
	c.mu.Unlock()
	c.since.Store(int64(now))
}

// End records that the operation has returned.
func (c *Call) End() { c.since.Store(0) }

// Lasts returns how long the operation has been under way, or 0 if there is none.
func (c *Call) Lasts() time.Duration {
	since := c.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, c.clock.Now()-time.Duration(since))
}

// Current returns the operation that is under way. op is "" if there is none.
func (c *Call) Current() (op, key string) {
	if c.since.Load() == 0 {
		return "", ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.op, c.key
}

// Hung returns the operation if it has been under way for at least HungCall, and how long it has
// been. op is "" if there is none.
func (c *Call) Hung() (op, key string, lasts time.Duration) {
	if lasts = c.Lasts(); lasts < HungCall {
		return "", "", 0
	}
	op, key = c.Current() // empty if the operation has returned by now
	return op, key, lasts
}
