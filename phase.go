package informer

import "sync/atomic"

// phase is a part of the life of a listener. Joining and live alternate, as often as pop reads a
// state or a page of it. The other phases follow each other:
//
//	live          -> last                pop ends, because the source has stopped
//	joining       -> cut                 pop ends without the state, because the informer stops
//	joining, live -> removed -> over     the registration ends, and then pop
//	last, cut     -> over                the registration ends after pop
type phase int32

const (
	phaseOver    phase = iota - 2 // like removed, and pop has ended
	phaseRemoved                  // run takes no more events, and drops those that it has
	phaseJoining                  // run waits for the state that pop is reading
	phaseLive                     // run takes events
	phaseLast                     // pop has ended, and run takes the last events
	phaseCut                      // pop has ended, and run takes no more events
)

// lifecycle holds the phase of a listener. The phase changes only under the listener's mu. It is
// read without mu, too, because run looks at it before each event. That costs least if the phases
// without calls are below 0.
type lifecycle struct{ now atomic.Int32 }

func (c *lifecycle) phase() phase { return phase(c.now.Load()) }

// removed reports whether the registration has ended.
func (c *lifecycle) removed() bool { return c.now.Load() < 0 }

// turn begins p, which is joining or live, unless the registration has ended.
func (c *lifecycle) turn(p phase) {
	if !c.removed() {
		c.now.Store(int32(p))
	}
}

// endPop notes that pop has ended.
func (c *lifecycle) endPop() {
	switch c.phase() {
	case phaseJoining:
		c.now.Store(int32(phaseCut))
	case phaseLive:
		c.now.Store(int32(phaseLast))
	case phaseRemoved:
		c.now.Store(int32(phaseOver))
	}
}

// remove notes that the registration has ended.
func (c *lifecycle) remove() {
	switch c.phase() {
	case phaseJoining, phaseLive:
		c.now.Store(int32(phaseRemoved))
	case phaseLast, phaseCut:
		c.now.Store(int32(phaseOver))
	}
}
