// Package stopwatch measures times of an informer: the time since it was made, and the duration
// of calls of the user's code, which may hang.
package stopwatch

import (
	"sync/atomic"
	"time"
)

// Stopwatch measures the time since it was made. It is monotonic, and a reading costs half as
// much as time.Now. It may be copied and used from any goroutine.
type Stopwatch struct{ born time.Time }

// New returns a Stopwatch that starts now.
func New() Stopwatch { return Stopwatch{time.Now()} }

// Now returns the time since the start. It is never 0, because 0 stands for never.
func (s Stopwatch) Now() time.Duration { return time.Since(s.born) + 1 }

// Moment is a time on a stopwatch that is set often and read rarely. The zero Moment stands for
// never. Its methods may be called from any goroutine.
type Moment struct{ at atomic.Int64 }

// Set sets m to the current time of s.
func (m *Moment) Set(s Stopwatch) { m.SetAfter(s, 0) }

// SetAfter sets m to the current time of s plus d.
func (m *Moment) SetAfter(s Stopwatch, d time.Duration) { m.at.Store(int64(s.Now() + d)) }

// Time returns m as a time of day, or the zero time if m was never set. s must be the Stopwatch
// that was passed to Set or SetAfter. Time counts back from the current time of day, because the
// system's clock may have been changed since m was set. So the results of two calls may differ by
// some nanoseconds.
func (m *Moment) Time(s Stopwatch) time.Time {
	at := m.at.Load()
	if at == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(at) - s.Now()).Round(0) // without the monotonic reading
}
