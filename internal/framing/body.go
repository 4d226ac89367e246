package framing

import (
	"context"
	"errors"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

var errClosed = errors.New("framing: the body is closed")

// A body is the body of an answer from which this package takes the objects, inside Read.
type body struct {
	tap          *Tap
	real         io.ReadCloser
	ctx          context.Context // of the request
	live, binary bool
	gv           string // from the path of the request
	closing      sync.Once
	closed       chan struct{}

	// The rest belongs to the reader.
	in  window
	out []byte // for the reader
	raw bool   // the reader gets the rest of in after out
	err error  // of this package; comes after out, and each time after that
}

// Close closes the real body. A Read that is under way returns an error.
func (b *body) Close() error {
	b.closing.Do(func() { close(b.closed) })
	return b.real.Close()
}

// pass passes the next n bytes to the reader.
func (b *body) pass(n int) {
	b.out = append(b.out, b.in.data()[:n]...)
	b.in.skip(n)
}

// passFrame passes one event of a watch to the reader. The decoder of client-go reads ahead, so a
// Read returns no more than this event.
func (b *body) passFrame(n int) {
	b.send(watch.Event{Type: Mark})
	b.pass(n)
}

// passRest passes the rest of a watch to the reader.
func (b *body) passRest() {
	b.send(watch.Event{Type: Mark})
	b.raw = true
}

// event sends an event of a watch to the Tap. The event has n bytes in the window.
func (b *body) event(kind watch.EventType, obj runtime.Object, n int) {
	b.in.skip(n)
	b.in.release()
	b.tap.count.Add(1)
	b.send(watch.Event{Type: kind, Object: obj})
}

func (b *body) send(e watch.Event) {
	select {
	case b.tap.Events <- e:
		return
	default:
	}
	select {
	case b.tap.Events <- e:
	case <-b.closed:
		b.err = errClosed
	case <-b.ctx.Done():
		b.err = b.ctx.Err()
	}
}

// item passes an item of a list to the Tap.
func (b *body) item(obj runtime.Object) {
	b.tap.count.Add(1)
	b.err = b.tap.Item(obj)
}
