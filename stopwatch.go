package informer

import (
	"sync/atomic"
	"time"
)

// stopwatch counts the time since an informer was made. It is monotonic, and to look at it
// costs half of what time.Now does.
type stopwatch struct{ born time.Time }

// now is never 0, which stands for never.
func (s stopwatch) now() time.Duration { return time.Since(s.born) + 1 }

// moment is a time on a stopwatch that is set often and read seldom.
type moment struct{ at atomic.Int64 }

func (m *moment) set(s stopwatch) { m.at.Store(int64(s.now())) }

// time returns the time of day, or the zero time if it was never set.
func (m *moment) time(s stopwatch) time.Time {
	at := m.at.Load()
	if at == 0 {
		return time.Time{}
	}
	return s.born.Add(time.Duration(at)).Round(0) // without the monotonic reading
}
