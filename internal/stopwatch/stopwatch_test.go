package stopwatch

import (
	"testing"
	"time"
	"unsafe"
)

// TestAMomentIsRightAfterTheSystemsClockWasSet makes a stopwatch that was started while the
// system's clock was an hour ahead.
func TestAMomentIsRightAfterTheSystemsClockWasSet(t *testing.T) {
	s := New()
	// A time.Time with a monotonic reading begins with the seconds of the clock, above 30 bits
	// of nanoseconds. No exported function changes only that reading.
	*(*uint64)(unsafe.Pointer(&s.born)) += 3600 << 30
	if ahead := s.born.Round(0).Sub(time.Now().Round(0)); ahead < 59*time.Minute {
		t.Fatalf("the stopwatch was started %v ahead", ahead)
	}
	var m Moment
	m.Set(s)
	if ahead := time.Until(m.Time(s)); ahead > 0 || ahead < -time.Minute {
		t.Errorf("the moment is %v from now", ahead)
	}
}

func TestAMomentThatWasNeverSetIsTheZeroTime(t *testing.T) {
	var m Moment
	if got := m.Time(New()); !got.IsZero() {
		t.Errorf("it is %v", got)
	}
}
