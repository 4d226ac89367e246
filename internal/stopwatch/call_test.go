package stopwatch

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestACallIsNamedOnceItHasLastedForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := New()
		c := NewCall(clock)
		check := func(op, key string, lasts time.Duration, hung bool) {
			t.Helper()
			if gotOp, gotKey := c.Current(); gotOp != op || gotKey != key {
				t.Errorf("under way is %q %q, want %q %q", gotOp, gotKey, op, key)
			}
			if got := c.Lasts(); got != lasts {
				t.Errorf("it lasts %v, want %v", got, lasts)
			}
			gotOp, gotKey, gotLasts := c.Hung()
			if hung && (gotOp != op || gotKey != key || gotLasts != lasts) || !hung && gotOp != "" {
				t.Errorf("%q %q hangs for %v, want %t", gotOp, gotKey, gotLasts, hung)
			}
		}
		check("", "", 0, false)
		c.Begin("add", "default/a", clock.Now())
		check("add", "default/a", 0, false)
		time.Sleep(HungCall - 1)
		check("add", "default/a", HungCall-1, false)
		time.Sleep(time.Nanosecond)
		check("add", "default/a", HungCall, true)
		c.End()
		check("", "", 0, false)
		c.Begin("list", "", clock.Now())
		time.Sleep(time.Minute)
		check("list", "", time.Minute, true)
	})
}

func TestACallThatBeginsAheadOfTheClockHasLastedForNoTime(t *testing.T) {
	clock := New()
	c := NewCall(clock)
	c.Begin("add", "", clock.Now()+time.Hour)
	if got := c.Lasts(); got != 0 {
		t.Errorf("it lasts %v", got)
	}
}
