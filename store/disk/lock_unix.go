//go:build unix

package disk

import (
	"errors"
	"os"
	"syscall"
)

// lockFile keeps everybody else from the file at path until what it returns is closed.
// It locks a file beside it, which stays, because that at path may come to be another.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lockToRead returns ErrInUse if bbolt has f open, by another name or past a lock file
// that somebody has removed: a file that is being written looks damaged.
func lockToRead(f *os.File) error { return flock(f, syscall.LOCK_SH) }

// flock takes a lock of that kind on f, until it is closed, or returns ErrInUse at once.
func flock(f *os.File, how int) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrInUse
		case !errors.Is(err, syscall.EINTR):
			return err
		}
	}
}
