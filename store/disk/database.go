package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// database is a file that bbolt has open. One goroutine at a time writes to it. If the file as
// a whole turns out to be damaged, every later operation returns an error.
type database struct {
	path   string
	report func(error) // Options.ErrorHandler
	db     *bbolt.DB
	file   *os.File // the file of db, for the case that db cannot be closed

	writer  chan struct{} // has a token during a write; Close keeps the token
	closing chan struct{}
	broken  atomic.Pointer[error] // why every operation returns an error; nil while the file is usable
	marked  atomic.Bool           // whether the file is marked as damaged
}

// openDatabase opens the file at path with bbolt. The caller must close the database, also
// after an error.
func openDatabase(path string, report func(error)) (*database, error) {
	d := &database{path: path, report: report, writer: make(chan struct{}, 1), closing: make(chan struct{})}
	return d, d.guard(func() (err error) {
		d.db, err = bbolt.Open(path, fileMode, &bbolt.Options{
			Timeout: 1, // a nanosecond: do not wait for the lock
			// With an array, time grows with the number of free pages.
			FreelistType: bbolt.FreelistMapType,
			PageSize:     pageSize,
			MaxSize:      maxFile,
			NoStatistics: true,
			OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
				d.file, err = os.OpenFile(name, flag, perm)
				return d.file, err
			},
		})
		switch {
		case errors.Is(err, berrors.ErrTimeout):
			return ErrInUse
		case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return err
	})
}

// close closes the file. The caller must be the writer.
func (d *database) close() error {
	switch {
	case d.broken.Load() != nil:
		// bbolt may wait for a lock that is never released. The memory map stays until the
		// process ends, because a goroutine may be reading it.
		return unlock(d.file)
	case d.db == nil: // bbolt could not open it
		return nil
	}
	return d.guard(d.db.Close)
}

// claim waits until the caller is the only writer. It returns the error of ctx, or ErrClosed,
// if it does not get there. The caller must call release.
func (d *database) claim(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case d.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.closing:
		return ErrClosed
	}
}

func (d *database) release() { <-d.writer }

// view calls f in a read-only transaction. f must be quick: while the transaction is open, a
// write that makes the file grow may have to wait.
func (d *database) view(f func(tx *bbolt.Tx) error) error {
	return d.guard(func() error { return d.db.View(f) })
}

// update calls f in a transaction, and commits it if f returns nil. The caller must be the
// writer.
func (d *database) update(f func(tx *bbolt.Tx) error) error {
	err := d.guard(func() error { return d.db.Update(f) })
	if errors.Is(err, berrors.ErrMaxSizeReached) {
		return fmt.Errorf("the file would have more than %d bytes: %w", maxFile, err)
	}
	return err
}

// guard calls f, which must call only bbolt and this package. If f panics, or reads a part of
// the memory map that no longer exists, then the file or bbolt's state is wrong, and bbolt may
// have left something locked. Then guard gives up the database.
func (d *database) guard(f func() error) (err error) {
	if err := d.broken.Load(); err != nil {
		return *err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = d.giveUp(p)
		}
	}()
	err = f()
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

// giveUp makes every later operation return an error, and marks the file as damaged.
func (d *database) giveUp(panicked any) error {
	err := fmt.Errorf("%w: %v", ErrDamaged, panicked)
	if !d.broken.CompareAndSwap(nil, &err) {
		return *d.broken.Load()
	}
	report := fmt.Errorf("disk: %s: %w\n%s", d.path, err, debug.Stack())
	d.report(errors.Join(report, d.markDamaged(panicked)))
	return err
}

// markDamaged makes the next Open set the file aside, even if the file looks right then. Only
// the first reason is kept.
func (d *database) markDamaged(reason any) error {
	if !d.marked.CompareAndSwap(false, true) {
		return nil
	}
	err := os.WriteFile(mark(d.path), fmt.Append(nil, reason), fileMode)
	if err != nil {
		d.marked.Store(false)
	}
	return err
}
