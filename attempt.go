package informer

import (
	"context"
	"errors"
	"runtime/debug"
	"time"
)

// attempt is a call of the watcher that has returned.
type attempt[T Object] struct {
	event    Event[T]
	took     time.Duration
	err      error
	failures int  // of the event, including this one if it failed
	gaveUp   bool // if it failed, there will be no further attempt
	stopped  bool // there will be no further attempt because the informer stops
}

// recoverTo turns a panic of the function that defers it into an error.
func recoverTo(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

// interrupted reports whether err says only that ctx has ended.
func interrupted(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err())
}
