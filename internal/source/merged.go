package source

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/framing"
)

// merged joins the events of a watch that this package has decoded with those from client-go, in
// the order of the body. Only one goroutine may use it.
type merged struct {
	taken <-chan watch.Event // nil if the body is client-go's
	rest  <-chan watch.Event // of client-go

	count  *atomic.Int64 // of the taken events
	next   watch.Event   // was taken, and comes next, unless its type is that of a Mark
	marked bool          // what client-go has comes next
	held   bool          // client-go has e, or its watch is over
	e      watch.Event
	open   bool
}

// poll returns the next event without blocking. ok is false if there is none yet. open is false
// at the end of the watch.
func (m *merged) poll() (e watch.Event, open, ok bool) {
	for {
		if m.next.Type != framing.Mark {
			e, m.next = m.next, watch.Event{}
			return e, true, true
		}
		if !m.marked {
			select {
			case e := <-m.taken:
				m.take(e)
				continue
			default:
			}
		}
		// client-go has an event only after its Mark, so without one, its watch is over.
		if m.held {
			m.held, m.marked = false, false
			return m.e, m.open, true
		}
		select {
		case e, open := <-m.rest:
			m.hold(e, open)
		default:
			return e, false, false
		}
	}
}

// ahead returns the channel of the taken events, or nil while an event from client-go must come
// first.
func (m *merged) ahead() <-chan watch.Event {
	if m.marked {
		return nil
	}
	return m.taken
}

// take stores an event that was received from ahead.
func (m *merged) take(e watch.Event) {
	if e.Type == framing.Mark {
		m.marked = true
	} else {
		m.count.Add(1)
		m.next = e
	}
}

// hold stores an event that was received from rest. open is false if rest was closed.
func (m *merged) hold(e watch.Event, open bool) { m.e, m.open, m.held = e, open, true }
