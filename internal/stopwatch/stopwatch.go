// Package stopwatch measures an informer's times: since it was made, and of a call into the
// user's code that may hang.
package stopwatch

import (
	"sync/atomic"
	"time"
)

// Stopwatch counts the time since an informer was made. It is monotonic, and to look at it
// costs half of what time.Now does.
type Stopwatch struct{ born time.Time }

// New returns a Stopwatch that begins now.
func New() Stopwatch { return Stopwatch{time.Now()} }

// Now is never 0, which stands for never.
func (s Stopwatch) Now() time.Duration { return time.Since(s.born) + 1 }

// Moment is a time on a stopwatch that is set often and read seldom.
type Moment struct{ at atomic.Int64 }

// Set notes that it is now.
func (m *Moment) Set(s Stopwatch) { m.at.Store(int64(s.Now())) }

// Time returns the time of day, or the zero time if it was never set.
func (m *Moment) Time(s Stopwatch) time.Time {
	at := m.at.Load()
	if at == 0 {
		return time.Time{}
	}
	return s.born.Add(time.Duration(at)).Round(0) // without the monotonic reading
}
