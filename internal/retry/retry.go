// Package retry repeats an operation on a store until it succeeds or the caller gives up. The
// caller waits between two attempts and decides when to stop: see access.repeat in write.go for
// writes and readStore in join.go for watchers that join.
package retry

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// backoff holds the pauses between attempts: 10 ms at first, and later up to 5 s. The jitter is
// added to Cap.
var backoff = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 10 * time.Second / 3}

// Failure is an attempt that has failed.
type Failure struct {
	Count int           // how many attempts have failed in a row, this one included
	Err   error         // the error of this attempt
	Pause time.Duration // how long to wait before the next attempt
}

// Do calls try until it returns nil. After each failure it calls rest, which must wait for the
// pause, and return nil for another attempt or an error to give up. Do returns nil, or the error
// of rest. It calls try and rest on the goroutine of the caller, and blocks as long as they do.
func Do(try func() error, rest func(Failure) error) error {
	return After(try(), try, rest)
}

// After is Do for a caller that has made the first attempt itself. err is the result of that
// attempt. If err is nil, After returns nil at once.
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
