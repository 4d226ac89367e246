package probe

import (
	"os"
	"strconv"
	"strings"
)

// peakMemory returns the most memory that was resident, or 0 where the system does not report
// it. It does not use getrusage: on Linux that value starts with the memory of the parent
// process.
func peakMemory() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kibi, _ := strconv.ParseFloat(f[1], 64)
			return kibi * 1024
		}
	}
	return 0
}
