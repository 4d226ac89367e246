package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/codec"
)

var (
	_ informer.Durable = (*Store)(nil)
	_ informer.Typed   = (*Store)(nil)
	_ cache.Indexer    = (*Store)(nil)
)

// Store keeps objects of one type in a file, with their indexes, and is both an
// informer.Durable and a cache.Indexer. It is made by [Open] and must not be copied. All
// methods may be called from any goroutine. It has no goroutines of its own, and keeps no
// objects in memory: each call that returns objects decodes them again, so that they belong to
// the caller.
//
// Errors name the operation and the key, if there is one. A write that can never succeed is
// refused with an error that wraps informer.ErrPermanent, and has no effect. That is a write
// of an object of another type, without a name, with a key longer than 16 KiB or that takes
// more than 32 MiB; of an object that cannot be encoded, or not be decoded again; or of an
// object for which an index function fails. Errors of the operating system, such as a full
// disk, are wrapped; the call may be repeated. Other errors are ErrDamaged and ErrClosed.
type Store struct {
	path  string
	opts  Options
	codec codec.Codec
	lock  *os.File
	db    *bbolt.DB
	file  *os.File // the file of db, in case db cannot be closed any more

	writer  chan struct{} // has a token during a write; Close keeps the token
	closing chan struct{}
	close   func() error
	broken  atomic.Pointer[error] // the reason why every operation fails; nil if none does
	marked  atomic.Bool           // the file is marked as damaged

	indexes atomic.Pointer[map[string]*index] // the indexes in use; only the writer changes the map
	dormant map[string]bool                   // indexes in the file without a function, and whether they are complete; only for the writer
}

// Open opens the file at path, or makes it, for objects of the example's type: a pointer to a
// struct, such as &corev1.Pod{}, or an &unstructured.Unstructured{}. The directory must exist.
// Next to the file there is one with the suffix ".lock", and perhaps one with the suffix
// ".aside-" and a time. If path is a symbolic link, Open returns an error. If a file that exists
// has another mode than 0600, so that others can read or write it, Open gives it mode 0600.
//
// A file that has another identity, that is damaged, that has an object that cannot be decoded,
// or whose mode cannot be changed, is renamed to one with that second suffix, replaces an earlier
// one, and is reported to Options.ErrorHandler; an empty file takes its place. To find that out,
// Open reads the whole file, at some hundred thousand objects a second, and decodes the
// tombstones, the first thousand objects and one of every hundred of the others. Open blocks
// meanwhile, and while it builds those of Options.Indexers that the file does not have yet.
//
// If the file is open already, Open returns an error at once that wraps ErrInUse. Other errors
// come from the options, from index functions and from the operating system: the file is not
// to blame for them, and Open leaves it alone. If the system denies access to the file, to those next
// to it or to the directory, the error has their owners and modes, except on Windows, and the remedy.
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
	if err := opts.Identity.Validate(of.Type()); err != nil {
		return nil, fmt.Errorf("Options.%w", err)
	}
	s := &Store{
		path: path, opts: opts.withDefaults(), codec: of,
		writer: make(chan struct{}, 1), closing: make(chan struct{}), dormant: map[string]bool{},
	}
	s.close = sync.OnceValue(s.closeAll)
	s.indexes.Store(&map[string]*index{})
	if s.lock, err = lockFile(path); err != nil {
		return nil, s.explain(err)
	}
	abandon, opened := func() error { return unlock(s.lock) }, false
	defer func() {
		if !opened { // also if an index function, or a method that decodes, has panicked
			err = errors.Join(err, abandon())
		}
	}()
	if err := s.openFile(); err != nil {
		return nil, s.explain(err)
	}
	abandon = s.Close
	if err := s.AddIndexers(opts.Indexers); err != nil {
		return nil, err
	}
	opened = true
	return s, nil
}

// ObjectType returns the type of the example that was given to [Open].
func (s *Store) ObjectType() reflect.Type { return s.codec.Type() }

// Close closes the file. It waits for the calls that are under way. Later calls return
// ErrClosed; those that return no error, such as List, return nothing. A second Close returns
// the result of the first.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeAll() error {
	_ = s.claim(context.Background()) // never released: waiting writers are woken up by closing
	close(s.closing)
	var err error
	if s.broken.Load() != nil {
		// bbolt may wait for a lock that is never released. The memory map stays until the
		// process ends, because a goroutine may be reading it.
		err = unlock(s.file)
	} else {
		err = errors.Join(s.endSession(), s.guard(s.db.Close))
	}
	if err = errors.Join(err, unlock(s.lock)); err != nil {
		return fmt.Errorf("disk: close %s: %w", s.path, err)
	}
	return nil
}
