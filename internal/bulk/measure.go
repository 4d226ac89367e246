//go:build linux

package bulk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Run starts this program with a setup as JSON in an environment variable. It adds what the program prints
// as JSON to got.
func Run(variable string, setup, got any) error {
	text, err := json.Marshal(setup)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	return json.Unmarshal(out, got)
}

// PerSecond calls f, which does n operations, for some time.
func PerSecond(during time.Duration, n int, f func()) string {
	start, done := time.Now(), 0
	for time.Since(start) < during {
		f()
		done += n
	}
	return Thousands(int(float64(done) / time.Since(start).Seconds()))
}

// WatchMemory measures the memory every 5 ms until peak is called, which returns the highest
// value.
func WatchMemory() (peak func() int64) {
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		highest := Anonymous()
		for {
			select {
			case <-tick.C:
				highest = max(highest, Anonymous())
			case <-stop:
				most <- highest
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}

// Anonymous returns RssAnon: the memory of the process that does not belong to a file. It
// excludes the pages of a mapped file, which the kernel frees when it needs memory.
func Anonymous() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err) // the file exists only on Linux
	}
	_, rest, _ := bytes.Cut(status, []byte("RssAnon:"))
	number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
	kib, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		panic(err)
	}
	return kib << 10
}

// Mebibytes returns a number of bytes as text.
func Mebibytes(n int64) string { return Thousands(int(n>>20)) + " MiB" }

// Seconds returns a duration as text.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// CPU returns the CPU time of the process so far.
func CPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // the arguments are valid
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Load returns the load average of the machine in the last minute.
func Load() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	average, _, _ := strings.Cut(string(text), " ")
	return average, err
}

// Thousands returns a number with commas.
func Thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
