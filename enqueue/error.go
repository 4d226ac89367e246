package enqueue

import "fmt"

// Error is a failure of a reconcile function for a key. A [Controller] passes one to
// Options.ErrorHandler for each call that fails, with the exceptions listed there.
type Error struct {
	Name     string // Options.Name
	Key      any    // the key, a K if the controller is a Controller[K]
	Failures int    // how many calls for the key have failed in a row, this one included; starts over after the key was given up
	GaveUp   bool   // no attempt follows until an event queues the key: after ErrPermanent or MaxAttempts, or because the controller stops
	Err      error  // the error that reconcile returned, or a *informer.PanicError after a panic
}

// Error returns a message with the name of the controller, the key, Err, how often the key has
// failed, and whether it is given up.
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
