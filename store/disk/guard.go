package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// claim makes the caller the only writer, until release.
func (s *Store) claim(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return ErrClosed
	}
}

func (s *Store) release() { <-s.writer }

// view calls f in a read-only transaction. f must be quick: while the transaction is open, a
// write that makes the file grow may have to wait.
func (s *Store) view(f func(tx *bbolt.Tx) error) error {
	return s.guard(func() error { return s.db.View(f) })
}

// update calls f in a transaction, which is committed if f returns nil. The caller must be the
// writer.
func (s *Store) update(f func(tx *bbolt.Tx) error) error {
	err := s.guard(func() error { return s.db.Update(f) })
	if errors.Is(err, berrors.ErrMaxSizeReached) {
		return fmt.Errorf("the file would have more than %d bytes: %w", maxFile, err)
	}
	return err
}

// guard calls f, which must call only bbolt and this package. If f panics, or reads a part of
// the memory map that no longer exists, then the file or bbolt's knowledge of it is wrong, and
// bbolt may have left something locked.
func (s *Store) guard(f func() error) (err error) {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = s.giveUp(p)
		}
	}()
	err = f()
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}

// giveUp makes every operation fail from now on, and marks the file as damaged.
func (s *Store) giveUp(panicked any) error {
	err := fmt.Errorf("%w: %v", ErrDamaged, panicked)
	if !s.broken.CompareAndSwap(nil, &err) {
		return *s.broken.Load()
	}
	report := fmt.Errorf("disk: %s: %w\n%s", s.path, err, debug.Stack())
	s.opts.ErrorHandler(errors.Join(report, s.markDamaged(panicked)))
	return err
}

// markDamaged makes the next Open set the file aside, even if it looks right then. Only the
// first reason is kept.
func (s *Store) markDamaged(reason any) error {
	if !s.marked.CompareAndSwap(false, true) {
		return nil
	}
	err := os.WriteFile(s.mark(), fmt.Append(nil, reason), fileMode)
	if err != nil {
		s.marked.Store(false)
	}
	return err
}

// mark returns the name of the file that marks the store's file as damaged.
func (s *Store) mark() string { return s.path + ".damaged" }

func (s *Store) unmark() error {
	if err := os.Remove(s.mark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.marked.Store(false)
	return nil
}
