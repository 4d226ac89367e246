package lab

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"
)

// These are the memory figures that are read from the runtime.
const (
	HeapObjects = "/memory/classes/heap/objects:bytes" // live objects, and dead ones that are not swept yet
	HeapLive    = "/gc/heap/live:bytes"                // live objects as of the latest collection
	stackMemory = "/memory/classes/heap/stacks:bytes"
)

// Bytes reads a memory figure.
func Bytes(metric string) float64 {
	s := []metrics.Sample{{Name: metric}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64())
}

// Settled returns the live heap and the stacks after three collections. The first one shrinks stacks and
// frees those of ended goroutines. Pools and finalizers keep objects until the next ones.
func Settled() (heap, stacks float64) {
	for range 3 {
		runtime.GC()
	}
	return Bytes(HeapObjects), Bytes(stackMemory)
}

// WatchPeak reads a figure again and again until peak is called, which returns the highest value.
func WatchPeak(every time.Duration, read func() float64) (peak func() float64) {
	var looking sync.WaitGroup
	highest, done := read(), make(chan struct{})
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(every):
				highest = max(highest, read())
			}
		}
	})
	return func() float64 {
		close(done)
		looking.Wait()
		return max(highest, read())
	}
}

// These are the memory figures of a process that Linux has. The anonymous memory belongs to no file, so it
// is without the pages of a mapped file, which the kernel frees when it needs memory. The peak is not that
// of getrusage, which begins with the memory of the parent process.
const (
	Peak      = "VmHWM"
	Resident  = "VmRSS"
	Anonymous = "RssAnon"
)

// Memory reads such a figure, in bytes. It is 0 on other systems.
func Memory(figure string) float64 {
	kib, _ := strconv.ParseFloat(strings.TrimSuffix(field("/proc/self/status", figure+":"), " kB"), 64)
	return kib * 1024
}

// WatchAnonymous watches the anonymous memory.
func WatchAnonymous() (peak func() float64) {
	return WatchPeak(5*time.Millisecond, func() float64 { return Memory(Anonymous) })
}

// Returned returns the anonymous memory after the runtime has returned to the system all that it can.
func Returned() float64 {
	runtime.GC() // pools give their memory up only at the second collection
	debug.FreeOSMemory()
	return Memory(Anonymous)
}

// Load returns the load average of the machine in the last minute.
func Load() string {
	load, _, _ := strings.Cut(field("/proc/loadavg", ""), " ")
	return load
}

// field returns the rest of the line of a file that begins with key.
func field(file, key string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
