package framing

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Mark is the type of an entry of Tap.Events that stands for what client-go gets: its next event
// comes at this place, or its watch ends. Each Mark stands for one event at most.
const Mark watch.EventType = ""

// A Tap takes the objects of one answer. Set its fields before the request.
type Tap struct {
	Type Type
	// Item gets each item of a list, in order, inside Read. Its error ends the body.
	Item func(runtime.Object) error
	// Events gets the events of a watch that have an object, in order, and Marks. A send inside
	// Read waits until the objects are received, the body is closed, or the context of the request ends.
	Events chan<- watch.Event

	taken  atomic.Bool
	misfit atomic.Bool
	count  atomic.Int64
	why    atomic.Pointer[string]
}

// Used reports whether the tap took the objects of an answer. A second answer to the same request
// goes client-go's way, and the tap is a Misfit.
func (t *Tap) Used() bool { return t.taken.Load() }

// Count returns the number of objects that were handed over.
func (t *Tap) Count() int { return int(t.count.Load()) }

// Misfit reports that items of a list were handed over before the list turned out to be of
// another kind, or not to be understood, or that a second answer has come. If client-go finds no
// error in the rest, the list has to be requested again without a tap.
func (t *Tap) Misfit() bool { return t.misfit.Load() }

// Why returns why the last answer went client-go's way, or "".
func (t *Tap) Why() string {
	if why := t.why.Load(); why != nil {
		return *why
	}
	return ""
}

func (t *Tap) leave(why string) { t.why.Store(&why) }

type key struct{}

// With returns a context for one request whose objects t takes, if the request passes a Transport.
func With(ctx context.Context, t *Tap) context.Context { return context.WithValue(ctx, key{}, t) }
