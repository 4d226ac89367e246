package disk

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/codec"
)

// Open opens the file at path, or creates it, for objects of the type of example: a pointer to a
// struct, such as &corev1.Pod{} or &unstructured.Unstructured{}. The directory must exist. Next
// to the file, Open creates one with the suffix ".lock", and perhaps one with the suffix
// ".aside-" and a time. A Store that finds damage creates one with the suffix ".damaged", which
// the next Open removes. If path is a symbolic link, Open returns an error. If an existing file
// has a mode with which others can read or write it, Open changes the mode to 0600.
//
// Open sets a file aside if it has another identity, if its objects have another type or other
// fields, if it is damaged, if it has an object that cannot be decoded, or if its mode cannot be
// changed. Open also does so if the file may lack writes, see [SurviveProcess], or is too large for
// a 32-bit machine. It renames the file, removes a file that was set aside before, reports a
// *SetAsideError to Options.ErrorHandler, and creates an empty file. To check the file, Open reads
// it as a whole, at some hundred thousand objects a second. It decodes the tombstones, the first
// thousand objects and one of every hundred other objects. Open blocks until that is done, and
// until Options.Indexers are complete.
//
// If the file is open already, Open returns at once an error that wraps ErrInUse. Other errors
// come from the options, from index functions and from the operating system. Then Open leaves the
// file alone. If the system denies access to the file, to those next to it or to the directory,
// the error names their owners and modes and explains what to do, except on Windows.
func Open(path string, example runtime.Object, opts Options) (*Store, error) {
	s, err := open(path, example, opts)
	if errors.Is(err, ErrDamaged) { // The damage was noticed only by the first write, or while an index was built. The file is now marked as damaged.
		s, err = open(path, example, opts)
	}
	if err != nil {
		return nil, fmt.Errorf("disk: open %s: %w", path, err)
	}
	return s, nil
}

func open(path string, example runtime.Object, opts Options) (_ *Store, err error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	of, err := codec.New(example)
	if err != nil {
		return nil, err
	}
	if _, ok := example.(informer.AnyObject); !ok {
		return nil, fmt.Errorf("the example is a %T, which is not an API object", example)
	}
	if err := opts.Identity.Validate(of.Type()); err != nil {
		return nil, fmt.Errorf("Options.%w", err)
	}
	opts = opts.withDefaults()
	s := &Store{codec: objectCodec{of}}
	s.close = sync.OnceValue(s.closeAll)
	s.indexes.Store(&map[string]*index{})
	if s.lock, err = lockFile(path); err != nil {
		return nil, explain(path, err)
	}
	abandon, opened := func() error { return unlock(s.lock) }, false
	defer func() {
		if !opened { // also if an index function, or a method that decodes, has panicked
			err = errors.Join(err, abandon())
		}
	}()
	if err := s.openFile(path, opts); err != nil {
		return nil, explain(path, err)
	}
	abandon = s.Close
	if err := s.AddIndexers(opts.Indexers); err != nil {
		return nil, err
	}
	opened = true
	return s, nil
}

// openFile opens the file at path. If the file cannot be used, openFile sets it aside and opens a
// new one.
func (s *Store) openFile(path string, opts Options) error {
	want := newLabel(s.codec.Codec, opts.Identity)
	reason, err := inspect(path, &inspection{want: want, codec: s.codec, found: map[string]bool{}})
	if err == nil && reason == nil {
		if err = s.openDatabase(path, want, opts); errors.Is(err, ErrDamaged) {
			reason, err = err, nil
		}
	}
	if err != nil || reason == nil {
		return err
	}
	if err := setAside(path, reason, opts.ErrorHandler); err != nil {
		return err
	}
	return s.openDatabase(path, want, opts)
}

// openDatabase opens the file at path with bbolt, finds its indexes, and begins a session.
func (s *Store) openDatabase(path string, want label, opts Options) (err error) {
	s.database, err = openDatabase(path, opts.ErrorHandler)
	if err == nil {
		err = s.view(s.findIndexes)
	}
	if err == nil {
		err = s.beginSession(want, opts.Durability)
	}
	if err != nil {
		return errors.Join(err, s.database.close())
	}
	return nil
}

// Close closes the file. It waits until no call reads or writes the file. Later calls of other methods return
// an error that wraps ErrClosed, or ErrDamaged if the file is damaged. A call that is under way may return
// such an error too. A second Close returns the same result as the first.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeAll() error {
	_ = s.claim(context.Background()) // never released: waiting writers are woken up by closing
	close(s.closing)
	var err error
	if s.broken.Load() == nil {
		err = s.endSession()
	}
	if err = errors.Join(err, s.database.close(), unlock(s.lock)); err != nil {
		return fmt.Errorf("disk: close %s: %w", s.path, err)
	}
	return nil
}
