//go:build unix

package probe

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time of this process until now.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
