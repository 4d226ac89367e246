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

// These are names of memory figures of the runtime, for Bytes.
const (
	HeapObjects = "/memory/classes/heap/objects:bytes" // live objects, and dead ones that are not swept yet
	HeapLive    = "/gc/heap/live:bytes"                // live objects as of the latest collection
	stackMemory = "/memory/classes/heap/stacks:bytes"
)

// Bytes returns a memory figure of the runtime.
func Bytes(metric string) float64 {
	s := []metrics.Sample{{Name: metric}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64())
}

// Settled returns the bytes of the live heap and of the stacks after three garbage collections. The first
// collection shrinks stacks and frees those of ended goroutines. Pools and finalizers keep objects until
// the later collections.
func Settled() (heap, stacks float64) {
	for range 3 {
		runtime.GC()
	}
	return Bytes(HeapObjects), Bytes(stackMemory)
}

// WatchPeak calls read again and again, with pauses of every, until peak is called. peak returns the
// highest value.
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

// These are names of memory figures of a process on Linux, for Memory. Anonymous memory does not include
// the pages of a mapped file, which the kernel frees when it needs memory. The peak of getrusage is of no
// use, because it begins with the memory of the parent process.
const (
	Peak      = "VmHWM"
	Resident  = "VmRSS"
	Anonymous = "RssAnon"
)

// Memory returns a memory figure of this process, in bytes. It returns 0 on systems other than Linux.
func Memory(figure string) float64 {
	kib, _ := strconv.ParseFloat(strings.TrimSuffix(field("/proc/self/status", figure+":"), " kB"), 64)
	return kib * 1024
}

// WatchAnonymous is WatchPeak for the anonymous memory, with pauses of 5 ms.
func WatchAnonymous() (peak func() float64) {
	return WatchPeak(5*time.Millisecond, func() float64 { return Memory(Anonymous) })
}

// Returned returns the anonymous memory after the runtime has returned as much memory as it can to the
// system.
func Returned() float64 {
	runtime.GC() // pools give their memory up only at the second collection
	debug.FreeOSMemory()
	return Memory(Anonymous)
}

// Load returns the load average of the machine in the last minute, or "" if it is not known.
func Load() string {
	load, _, _ := strings.Cut(field("/proc/loadavg", ""), " ")
	return load
}

// field returns the rest of the first line of a file that begins with key, or "".
func field(file, key string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
