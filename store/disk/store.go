package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

var (
	_ informer.Durable = (*Store)(nil)
	_ cache.Indexer    = (*Store)(nil)
)

// Store keeps objects of one type in a file, with their indexes, and is both an
// informer.Durable and a cache.Indexer. It is made by [Open] and must not be copied. All
// methods may be called from any goroutine. It has no goroutines of its own, and keeps
// no objects in memory: each call that returns some decodes them afresh, so that they
// belong to the caller.
//
// Errors name the operation and, where there is one, the key. A write that can never
// succeed is refused with an error that wraps informer.ErrPermanent and has no effect:
// an object of another type, without a name, with a key longer than 16 KiB or that
// takes more than 32 MiB; one that cannot be encoded, or read again when it is; one for
// which an index function fails. Those of the operating system, such as that of a full disk, are wrapped; the
// call may be made again. ErrDamaged and ErrClosed are others.
type Store struct {
	path  string
	opts  Options
	codec codec
	lock  *os.File
	db    *bbolt.DB
	file  *os.File // of db, in case that cannot be closed any more

	writer  chan struct{} // has a token while somebody writes; Close keeps it
	closing chan struct{}
	close   func() error
	broken  atomic.Pointer[error] // why nothing works any more

	indexes atomic.Pointer[map[string]*index] // in use; changed by the writer alone
	dormant map[string]bool                   // in the file without a function, and whether complete; the writer's
}

// Open opens the file at path, or makes it, for objects of the example's type: a pointer
// to a struct, such as &corev1.Pod{}, or an &unstructured.Unstructured{}. The directory
// must exist. Beside the file there is one that is named as it with ".lock", and perhaps
// one with ".aside-" and the time.
//
// A file that is of something else, or that is damaged, is renamed to such a one, in
// the place of an earlier one, and reported to Options.ErrorHandler; an empty one takes
// its place. The whole file is read to find that out, at some hundred thousand objects
// a second; Open blocks meanwhile, and while it builds Options.Indexers that the file
// does not have yet.
//
// An error that wraps ErrInUse comes at once if the file is open already. Other errors
// are those of the options, of index functions and of the operating system: they are
// not the file's fault, and leave it alone.
func Open(path string, example runtime.Object, opts Options) (*Store, error) {
	s, err := open(path, example, opts)
	if errors.Is(err, ErrDamaged) { // seen only by the first write; now it is marked
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
	codec, err := newCodec(example)
	if err != nil {
		return nil, err
	}
	s := &Store{
		path: path, opts: opts.withDefaults(), codec: codec,
		writer: make(chan struct{}, 1), closing: make(chan struct{}), dormant: map[string]bool{},
	}
	s.close = sync.OnceValue(s.closeAll)
	s.indexes.Store(&map[string]*index{})
	if s.lock, err = lockFile(path); err != nil {
		return nil, err
	}
	if err := s.openFile(); err != nil {
		return nil, errors.Join(err, unlock(s.lock))
	}
	opened := false
	defer func() {
		if !opened { // an index function may have panicked
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.AddIndexers(opts.Indexers); err != nil {
		return nil, err
	}
	opened = true
	return s, nil
}

// Close closes the file. It waits for the calls that are under way; later ones return
// ErrClosed, and List and the like nothing. A second Close returns what the first did.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeAll() error {
	_ = s.claim(context.Background()) // and never released: who waits for it is told by closing
	close(s.closing)
	var err error
	if s.broken.Load() != nil {
		// bbolt may wait for what nobody will unlock. The map stays until the process
		// ends, as somebody may be reading it.
		err = unlock(s.file)
	} else {
		err = errors.Join(s.endSession(), s.guard(s.db.Close))
	}
	if err = errors.Join(err, unlock(s.lock)); err != nil {
		return fmt.Errorf("disk: close %s: %w", s.path, err)
	}
	return nil
}
