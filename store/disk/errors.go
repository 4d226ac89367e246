package disk

import (
	"errors"
	"fmt"
)

var (
	// ErrInUse indicates that another Store, of this process or of another one, has
	// the file open.
	ErrInUse = errors.New("in use by another store")

	// ErrClosed indicates that the Store was closed.
	ErrClosed = errors.New("the store is closed")

	// ErrDamaged indicates that the file is not what was written to it. If it is a
	// single record that cannot be read, other operations go on; if the file as a whole
	// cannot be trusted any more, all operations fail from then on. The next Open sets
	// the file aside either way.
	ErrDamaged = errors.New("the file is damaged")
)

// SetAsideError says that Open has found a file that it could not use, and has begun
// an empty one in its place. It is reported to Options.ErrorHandler, never returned.
type SetAsideError struct {
	Path  string // of the file
	Aside string // where it is now
	Err   error  // why: wraps ErrDamaged, or says what it is of
}

// Error names the file, where it is now, and why.
func (e *SetAsideError) Error() string {
	return fmt.Sprintf("disk: %s was set aside as %s, and an empty file takes its place: %v", e.Path, e.Aside, e.Err)
}

// Unwrap returns Err.
func (e *SetAsideError) Unwrap() error { return e.Err }
