//go:build unix

package disk

import (
	"errors"
	"os"
	"syscall"
)

// lockFile keeps everybody else from the file at path until what it returns is unlocked.
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

// unlock gives the lock on f back, and closes f. Closing alone would not do: a process
// that this one is starting meanwhile has a copy of f until it begins its own program,
// and a lock goes when it is given back or when all copies are closed (flock(2)).
func unlock(f *os.File) error { return errors.Join(flock(f, syscall.LOCK_UN), f.Close()) }

// flock changes the lock on f to one of that kind, or returns ErrInUse at once.
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
