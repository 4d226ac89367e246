//go:build unix

package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// lockFile keeps all other stores from the file at path until its result is passed to unlock. It
// locks a separate file, because path may later name another file. That file is never removed.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// lockToRead returns ErrInUse if bbolt has f open, under another name or because another process
// has removed the lock file. A file that is being written looks damaged.
func lockToRead(f *os.File) error { return flock(f, syscall.LOCK_SH) }

// unlock releases the lock on f, and closes f. Closing alone is not enough. A child process has
// a copy of f until it begins its own program, and a lock ends only when it is released or all
// copies are closed (flock(2)).
func unlock(f *os.File) error { return errors.Join(flock(f, syscall.LOCK_UN), f.Close()) }

// flock changes the lock on f. how is the kind of lock. If the lock is taken, flock returns
// ErrInUse at once.
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

// explain adds the owners of the files and the remedy to an error of access. Open does not set
// aside files that it cannot lock, because another process may use them.
func explain(path string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	groups, _ := os.Getgroups()
	facts := fmt.Sprintf("the process has user %d and groups %v", os.Geteuid(), append(groups, os.Getegid()))
	for _, name := range []string{filepath.Dir(path), path, path + ".lock", mark(path)} {
		if info, err := os.Lstat(name); err == nil {
			owner := info.Sys().(*syscall.Stat_t)
			facts += fmt.Sprintf(", %s has user %d, group %d and mode %v", name, owner.Uid, owner.Gid, info.Mode())
		}
	}
	return fmt.Errorf("%w: %s: give the files to the user of the process with chown, or delete them if no other process uses them; "+
		"if it cannot write to the directory, change that with chown, chmod or the fsGroup of the Pod", err, facts)
}
