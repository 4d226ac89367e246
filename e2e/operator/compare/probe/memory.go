package probe

import (
	"os"
	"strconv"
	"strings"
)

// memory returns the most memory that was ever resident, and the anonymous memory that is
// resident now. Both are 0 where the system does not report them. It does not use getrusage: on
// Linux that value starts with the memory of the parent process.
func memory() (peak, anonymous float64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		kibi, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "VmHWM:":
			peak = kibi * 1024
		case "RssAnon:":
			anonymous = kibi * 1024
		}
	}
	return peak, anonymous
}
