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

// A body does its work inside Read.
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

// Close ends a Read that is under way.
func (b *body) Close() error {
	b.closing.Do(func() { close(b.closed) })
	return b.real.Close()
}

// pass gives the reader the next n bytes.
func (b *body) pass(n int) {
	b.out = append(b.out, b.in.data()[:n]...)
	b.in.skip(n)
}

// passFrame gives the reader one event of a watch. The decoder of client-go reads ahead, so it
// gets nothing more until its next Read.
func (b *body) passFrame(n int) {
	b.send(watch.Event{Type: Mark})
	b.pass(n)
}

// passRest gives the reader the rest of a watch.
func (b *body) passRest() {
	b.send(watch.Event{Type: Mark})
	b.raw = true
}

// event hands over an event of a watch, which has n bytes.
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

// item hands over an item of a list.
func (b *body) item(obj runtime.Object) {
	b.tap.count.Add(1)
	b.err = b.tap.Item(obj)
}
