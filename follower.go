package informer

import (
	"context"
)

// follower is the part of a listener whose watcher follows the versions of the source, see
// WatcherOptions.OnVersion.
type follower[T Object] struct {
	onVersion func(ctx context.Context, version string)
	version   string // the version of the state that the watcher begins with; protected by processor.mu until the processor is filled
	final     T      // the final state of the object whose delete comes next
}

// withFinal returns a function that calls tell with the final state of the deleted object. The version
// of a delete is unknown if the watch sent no usable final state, or if the delete was decided before
// the first follower joined.
func (f *follower[T]) withFinal(tell func(context.Context, Event[T]) error) func(context.Context, Event[T]) error {
	return func(ctx context.Context, e Event[T]) error {
		var none T
		switch {
		case f.final != none:
			e.Old, f.final = f.final, none
		case e.Origin == OriginWatch:
			f.onVersion(ctx, "")
		}
		if tell == nil {
			return nil
		}
		return tell(ctx, e)
	}
}
