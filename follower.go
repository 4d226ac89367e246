package informer

import "context"

// follower is the part of a listener whose watcher follows the versions of the source, see
// WatcherOptions.OnVersion.
type follower[T Object] struct {
	onVersion func(ctx context.Context, version string)
	final     T // the final state of the object whose delete comes next
}

// withFinal returns a function that calls tell with the final state of the deleted object. If the
// watch has sent no final state that can be used, the version of the delete is not known. Neither is
// it for a delete that was decided before the first follower came.
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
