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

// view calls f in a transaction that only reads. It must be short: as long as it is
// open, a write that makes the file grow may have to wait.
func (s *Store) view(f func(tx *bbolt.Tx) error) error {
	return s.guard(func() error { return s.db.View(f) })
}

// update calls f in a transaction that is committed if it returns nil. The caller is
// the writer.
func (s *Store) update(f func(tx *bbolt.Tx) error) error {
	return s.guard(func() error { return s.db.Update(f) })
}

// guard calls f, which calls nothing but bbolt and this package. If it panics, or reads
// from the memory map what is not there any more, the file or what bbolt knows of it is
// wrong, and bbolt may have left something locked.
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

// giveUp makes every operation fail from now on, and has the next Open set the file
// aside, even if it then looks right.
func (s *Store) giveUp(panicked any) error {
	err := fmt.Errorf("%w: %v", ErrDamaged, panicked)
	if !s.broken.CompareAndSwap(nil, &err) {
		return *s.broken.Load()
	}
	report := fmt.Errorf("disk: %s: %w\n%s", s.path, err, debug.Stack())
	if markErr := os.WriteFile(s.mark(), fmt.Append(nil, panicked), 0o600); markErr != nil {
		report = errors.Join(report, markErr)
	}
	s.opts.ErrorHandler(report)
	return err
}

// mark is a file that says that the one beside it is not to be used.
func (s *Store) mark() string { return s.path + ".damaged" }

func (s *Store) unmark() error {
	err := os.Remove(s.mark())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
