package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the processor time of this thread so far. The goroutine must be locked to its
// thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // it cannot fail with these arguments
	}
	return time.Duration(t.Nano())
}
