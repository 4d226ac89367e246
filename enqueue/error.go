package enqueue

import "fmt"

// Error says that a reconcile function has failed for a key. [Run] hands one to
// Options.ErrorHandler for each call that fails, with the exceptions named there.
type Error struct {
	Name     string // Options.Name
	Key      any    // of the queue's type of key
	Failures int    // of this key in a row, this one included, as the queue's rate limiter counts
	GaveUp   bool   // no other attempt but for an event: ErrPermanent, or the queue is shut down
	Err      error
}

// Error names what was reconciled, the key and the cause.
func (e *Error) Error() string {
	msg := fmt.Sprintf("%s %v: %v", e.Name, e.Key, e.Err)
	switch {
	case e.GaveUp && e.Failures > 1:
		return fmt.Sprintf("%s (given up after %d failures)", msg, e.Failures)
	case e.GaveUp:
		return msg + " (given up)"
	case e.Failures > 1:
		return fmt.Sprintf("%s (failure %d)", msg, e.Failures)
	}
	return msg
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
