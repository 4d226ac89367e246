//go:build !unix

package lab

import "time"

// CPU returns 0, because the CPU time of this process is not known.
func CPU() time.Duration { return 0 }
