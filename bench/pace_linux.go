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

func newPacer() (*pacer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a timer: %w", err)
	}
	return &pacer{os.NewFile(uintptr(fd), "timer")}, nil
}

// start starts the timer, and returns the time of the start.
func (p *pacer) start() (time.Time, error) {
	conn, err := p.timer.SyscallConn()
	if err != nil {
		return time.Time{}, fmt.Errorf("starting a timer: %w", err)
	}
	each := unix.NsecToTimespec(int64(period))
	var begun time.Time
	var failed error
	err = conn.Control(func(fd uintptr) {
		begun = time.Now()
		failed = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: each, Interval: each}, nil)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("starting a timer: %w", err)
	}
	return begun, nil
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
