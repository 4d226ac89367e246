package framing

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Mark is the type of an entry of Tap.Events that shows where client-go's next event belongs, or
// where its watch ends. Each Mark stands for at most one event.
const Mark watch.EventType = ""

// A Tap takes the objects of one answer. Set its fields before the request.
type Tap struct {
	Type Type
	// Item is called for each item of a list, in order, inside Read. If it returns an error, Read
	// returns that error.
	Item func(runtime.Object) error
	// Events gets the events of a watch that have an object, in order, and Marks. A send inside
	// Read waits until the objects are received, the body is closed, or the context of the request ends.
	Events chan<- watch.Event

	taken  atomic.Bool
	misfit atomic.Bool
	count  atomic.Int64
	why    atomic.Pointer[string]
}

// Used reports whether the tap has taken the objects of an answer. A second answer to the same
// request is left to client-go, and Misfit then returns true.
func (t *Tap) Used() bool { return t.taken.Load() }

// Count returns the number of objects that the tap has taken.
func (t *Tap) Count() int { return int(t.count.Load()) }

// Misfit reports whether the taken items are of no use: the list turned out to be of another kind
// or could not be understood, or there was a second answer. If client-go finds no error in the
// rest, the caller must request the list again without a tap.
func (t *Tap) Misfit() bool { return t.misfit.Load() }

// Why returns why the last answer was left to client-go, or "" if none was.
func (t *Tap) Why() string {
	if why := t.why.Load(); why != nil {
		return *why
	}
	return ""
}

func (t *Tap) leave(why string) { t.why.Store(&why) }

type key struct{}

// With returns a context for one request. If the request passes through a Transport, t takes the
// objects of the answer.
func With(ctx context.Context, t *Tap) context.Context { return context.WithValue(ctx, key{}, t) }
