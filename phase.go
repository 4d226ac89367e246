package informer

import "sync/atomic"

// phase is a part of the life of a listener. Joining and live alternate, as often as pop reads a
// state or a page of it. The other phases follow each other:
//
//	live          -> last                pop ends, because the source has stopped
//	joining       -> cut                 pop ends without the state, because the informer stops
//	joining, live -> removed -> over     the registration ends, and then pop
//	last, cut     -> over                the registration ends after pop
type phase uint32

const (
	phaseJoining phase = iota // run waits for the state that pop is reading
	phaseLive                 // run takes events
	phaseLast                 // pop has ended, and run takes the last events
	phaseCut                  // pop has ended, and run takes no more events
	phaseRemoved              // run takes no more events, and drops those that it has
	phaseOver                 // like removed, and pop has ended
)

// lifecycle holds the phase of a listener. The phase changes only under the listener's mu. It is
// read without mu, too, because run looks at it before each event.
type lifecycle struct{ now atomic.Uint32 }

func (c *lifecycle) phase() phase { return phase(c.now.Load()) }

// removed reports whether the registration has ended.
func (c *lifecycle) removed() bool { return c.phase() >= phaseRemoved }

// turn begins p, which is joining or live, unless the registration has ended.
func (c *lifecycle) turn(p phase) {
	if !c.removed() {
		c.now.Store(uint32(p))
	}
}

// endPop notes that pop has ended.
func (c *lifecycle) endPop() {
	next := [...]phase{phaseJoining: phaseCut, phaseLive: phaseLast, phaseRemoved: phaseOver}
	c.now.Store(uint32(next[c.phase()]))
}

// remove notes that the registration has ended.
func (c *lifecycle) remove() {
	next := [...]phase{phaseJoining: phaseRemoved, phaseLive: phaseRemoved, phaseLast: phaseOver, phaseCut: phaseOver}
	c.now.Store(uint32(next[c.phase()]))
}
