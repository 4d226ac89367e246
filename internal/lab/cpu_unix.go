//go:build unix

package lab

import (
	"syscall"
	"time"
)

// CPU returns the CPU time of this process so far, or 0 on systems other than Unix.
func CPU() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
