package disk

import (
	"errors"
	"fmt"
)

var (
	// ErrInUse indicates that another Store, in this process or another one, has the file open.
	ErrInUse = errors.New("in use by another store")

	// ErrClosed indicates that the Store was closed.
	ErrClosed = errors.New("the store is closed")

	// ErrDamaged indicates that the file is not as it was written. It also indicates that the
	// file has an object that this program cannot decode, because another version of the
	// program has written it. If a single record cannot be read, other operations continue. If
	// the file as a whole cannot be trusted any more, all later operations return this error.
	// Either way, the next Open sets the file aside.
	ErrDamaged = errors.New("the file is damaged")
)

func damage(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// SetAsideError reports that Open has renamed a file that it could not use, and has made an
// empty one in its place. It is passed to Options.ErrorHandler, never returned.
type SetAsideError struct {
	Path  string // of the file
	Aside string // its new name
	Err   error  // wraps ErrDamaged, or describes how the file differs from what Open expects
}

// Error returns a message with the file, its new name, and the reason.
func (e *SetAsideError) Error() string {
	return fmt.Sprintf("disk: %s was set aside as %s, and an empty file takes its place: %v", e.Path, e.Aside, e.Err)
}

// Unwrap returns Err.
func (e *SetAsideError) Unwrap() error { return e.Err }
