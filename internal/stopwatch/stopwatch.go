// Package stopwatch measures an informer's times: since it was made, and of a call into the
// user's code that may hang.
package stopwatch

import (
	"sync/atomic"
	"time"
)

// Stopwatch measures the time since an informer was made. It is monotonic, and reading it
// costs half of what time.Now does. It may be copied and used from any goroutine.
type Stopwatch struct{ born time.Time }

// New returns a Stopwatch that starts now.
func New() Stopwatch { return Stopwatch{time.Now()} }

// Now returns the time since the start. It is never 0, which stands for never.
func (s Stopwatch) Now() time.Duration { return time.Since(s.born) + 1 }

// Moment is a time on a stopwatch that is set often and read rarely. Its zero value stands
// for never. Its methods may be called from any goroutine.
type Moment struct{ at atomic.Int64 }

// Set sets m to the present time of s.
func (m *Moment) Set(s Stopwatch) { m.SetAfter(s, 0) }

// SetAfter sets m to the time of s at which d will have passed.
func (m *Moment) SetAfter(s Stopwatch, d time.Duration) { m.at.Store(int64(s.Now() + d)) }

// Time returns m as a time of day, or the zero time if it was never set. s must be the
// Stopwatch that was given to Set or SetAfter. The time of day is counted back from now, because the
// system's clock may have been set since m was. So two calls may differ by some nanoseconds.
func (m *Moment) Time(s Stopwatch) time.Time {
	at := m.at.Load()
	if at == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(at) - s.Now()).Round(0) // without the monotonic reading
}
