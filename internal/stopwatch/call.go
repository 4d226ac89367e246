package stopwatch

import (
	"sync"
	"sync/atomic"
	"time"
)

// HungCall is how long a call into the user's code (a store, a source or a watcher) may
// take before the informer names it.
const HungCall = 10 * time.Second

// Call is the operation that is under way, so that one that hangs can be named. One
// goroutine calls Begin and End; any goroutine may call the other methods. None of them
// blocks. It must not be copied.
type Call struct {
	clock Stopwatch

	since atomic.Int64 // 0 between operations

	mu      sync.Mutex // protects the rest
	op, key string
}

// NewCall returns a Call that measures with clock. No operation is under way.
func NewCall(clock Stopwatch) *Call { return &Call{clock: clock} }

// Begin notes that an operation begins at the time now of the clock. The key may be empty.
func (c *Call) Begin(op, key string, now time.Duration) {
	c.mu.Lock()
	c.op, c.key = op, key
	c.mu.Unlock()
	c.since.Store(int64(now))
}

// End notes that the operation has returned.
func (c *Call) End() { c.since.Store(0) }

// Lasts returns how long the operation has been under way, 0 if there is none.
func (c *Call) Lasts() time.Duration {
	since := c.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, c.clock.Now()-time.Duration(since))
}

// Current returns the operation that is under way. An empty op means that there is none.
func (c *Call) Current() (op, key string) {
	if c.since.Load() == 0 {
		return "", ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.op, c.key
}

// Hung returns the operation that has been under way for at least HungCall, and for how
// long. An empty op means that there is none.
func (c *Call) Hung() (op, key string, lasts time.Duration) {
	if lasts = c.Lasts(); lasts < HungCall {
		return "", "", 0
	}
	op, key = c.Current() // empty if the operation has returned by now
	return op, key, lasts
}
