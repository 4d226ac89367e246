package size

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// round is how many objects the sample takes at one distance before the distance doubles. So it takes about
	// 130 of the first 1,000 objects, and 370 of the first million.
	round = 24
	// pause is the time between two objects after the first state.
	pause = 300 * time.Millisecond
	// renewal is how many later objects replace the sample of the first state.
	renewal = 256
)

// Estimate estimates the mean size of objects from a sample. Only one goroutine may call Due and Add. Any
// goroutine may call Mean. The zero Estimate is ready to use.
type Estimate struct {
	seen, next, step int
	last             time.Duration
	random           *rand.Rand

	mu                   sync.Mutex // protects the rest
	weight, bytes, added float64    // sums
}

// Due reports whether the next object belongs to the sample. weight is the number of objects that it stands
// for, or 0 after the first state. now must come from a monotonic clock.
func (e *Estimate) Due(synced bool, now time.Duration) (weight float64, due bool) {
	if synced {
		due = now-e.last >= pause
		if due {
			e.last = now
		}
		return 0, due
	}
	e.last = now
	at := e.seen
	e.seen++
	if at < e.next {
		return 0, false
	}
	weight = float64(int(1) << (e.step / round))
	e.step++
	distance := 1 << (e.step / round)
	if e.random == nil {
		e.random = rand.New(rand.NewPCG(0, 0)) // names may repeat at regular distances
	}
	e.next = at + distance + e.random.IntN(distance) - distance/2
	return weight, true
}

// Add adds an object to the sample. bytes is its size, and weight comes from Due. stored is the current
// number of objects. added is how many of the bytes the object does not share with others, or -1 if that is
// not known.
func (e *Estimate) Add(weight float64, stored, bytes, added int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if weight == 0 { // it is of a later time
		weight = max(1, float64(stored)/renewal)
		if e.weight > 2*max(float64(stored), renewal) {
			e.weight, e.bytes, e.added = e.weight/2, e.bytes/2, e.added/2
		}
	}
	share := float64(added)
	switch {
	case added >= 0:
	case e.bytes > 0:
		share = float64(bytes) * e.added / e.bytes
	default:
		share = float64(bytes)
	}
	e.weight += weight
	e.bytes += weight * float64(bytes)
	e.added += weight * share
}

// Mean returns the mean size of an object in bytes, and how many of these bytes it does not share with other
// objects. Both are 0 if no object was added.
func (e *Estimate) Mean() (bytes, added float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.weight == 0 {
		return 0, 0
	}
	return e.bytes / e.weight, e.added / e.weight
}
