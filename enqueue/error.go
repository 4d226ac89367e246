package enqueue

import "fmt"

// Error is a failure of a reconcile function for a key. A [Controller] passes one to
// Options.ErrorHandler for each call that fails, with the exceptions named there.
type Error struct {
	Name     string // Options.Name
	Key      any    // of type K, the key type of the queue
	Failures int    // failures of this key in a row, this one included, since it was last given up
	GaveUp   bool   // only an event leads to another attempt: ErrPermanent, MaxAttempts, or the controller stops
	Err      error
}

// Error returns a message with the name, the key and the cause.
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
