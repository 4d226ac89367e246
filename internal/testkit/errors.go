package testkit

import (
	"context"
	"errors"
	"sync"
)

// ErrDown is the error of a store that may work again later.
var ErrDown = errors.New("the store is down")

// Ignore is an ErrorHandler that does nothing.
func Ignore(context.Context, error) {}

// ErrorLog keeps the errors that an informer reports. The zero ErrorLog is ready to use.
type ErrorLog struct {
	mu   sync.Mutex
	errs []error
}

// Handle is an ErrorHandler. It adds the error to the log.
func (l *ErrorLog) Handle(_ context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// Take returns the errors since the last call of Take.
func (l *ErrorLog) Take() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := l.errs
	l.errs = nil
	return errs
}

// ErrorIf returns err if failed is true, and nil otherwise.
func ErrorIf(failed bool, err error) error {
	if failed {
		return err
	}
	return nil
}
