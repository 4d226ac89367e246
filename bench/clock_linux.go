package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pacer is a timer that is a file. It wakes its reader in the same way as a connection does,
// and to the microsecond. A timer of the Go runtime fires up to a millisecond late while the
// process is idle, and that is a hundred times the latencies to be measured.
type pacer struct{ timer *os.File }

// startPacer returns a timer, and the time of its start.
func startPacer() (*pacer, time.Time, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("making a timer: %w", err)
	}
	p := &pacer{os.NewFile(uintptr(fd), "timer")}
	each, begun := unix.NsecToTimespec(int64(period)), time.Now()
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: each, Interval: each}, nil); err != nil {
		p.close()
		return nil, time.Time{}, fmt.Errorf("starting a timer: %w", err)
	}
	return p, begun, nil
}

// wait blocks until at least one more period is over, and returns the number of such periods.
func (p *pacer) wait() (int, error) {
	var expired [8]byte
	if _, err := p.timer.Read(expired[:]); err != nil {
		return 0, fmt.Errorf("waiting for a timer: %w", err)
	}
	return int(binary.NativeEndian.Uint64(expired[:])), nil
}

func (p *pacer) close() { _ = p.timer.Close() }

// threadTime returns the processor time of this thread so far. The goroutine must be locked to its
// thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // it cannot fail with these arguments
	}
	return time.Duration(t.Nano())
}
