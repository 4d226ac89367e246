// Package retry repeats an operation on a store until it succeeds or its caller gives up. The
// caller waits between two attempts, with its own reasons to stop: see access.repeat in
// write.go for writes and readStore in join.go for watchers that join.
package retry

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// backoff paces the attempts: pauses of 10 ms at first and of up to 5 s later. The jitter
// comes on top of Cap.
var backoff = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second / 3}

// Failure is an attempt that has failed.
type Failure struct {
	Count int           // how many attempts have failed in a row, this one included
	Err   error         // the error of this attempt
	Pause time.Duration // how long to wait before the next attempt
}

// Do calls try until it returns nil. After each failure it calls rest, which waits for the
// pause and then returns nil to have another attempt, or an error to give up. Do returns
// nil, or the error of rest. It blocks as long as try and rest do, and calls both from its
// own goroutine.
func Do(try func() error, rest func(Failure) error) error {
	return After(try(), try, rest)
}

// After is Do for an operation of which the caller has made the first attempt itself.
// The err is the result of that attempt. If it is nil, After does nothing.
func After(err error, try func() error, rest func(Failure) error) error {
	pauses := backoff
	for count := 1; err != nil; count++ {
		if stop := rest(Failure{Count: count, Err: err, Pause: pauses.Step()}); stop != nil {
			return stop
		}
		err = try()
	}
	return nil
}

// Sleep waits for the pause. It returns early, with the error of ctx, if ctx ends.
func Sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
