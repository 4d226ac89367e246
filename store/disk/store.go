package disk

import (
	"context"
	"errors"
	"os"
	"reflect"
	"sync/atomic"

	"github.com/customcacheinformer/informer"
)

var _ informer.DurableIndexer = (*Store)(nil)

// Store keeps objects of one type in a file, with their indexes, and is an
// informer.DurableIndexer. It is made by [Open] and must not be copied. All
// methods may be called from any goroutine. It has no goroutines of its own, and keeps no
// objects in memory: each call that returns objects decodes them again, so that they belong to
// the caller.
//
// Errors name the operation and the key, if there is one. A write that can never succeed is
// refused with an error that wraps informer.ErrPermanent, and has no effect. That is a write
// of an object of another type, without a key, with a key longer than 16 KiB or that takes
// more than 32 MiB; of an object that cannot be encoded, or not be decoded again; or of an
// object for which an index function fails. Errors of the operating system, such as a full
// disk, are wrapped; the call may be repeated. Other errors are ErrDamaged and ErrClosed.
type Store struct {
	*database
	codec objectCodec
	lock  *os.File
	close func() error

	indexes atomic.Pointer[map[string]*index] // the indexes in use; only the writer changes the map
	dormant map[string]bool                   // indexes in the file without a function, and whether they are complete; only for the writer
}

// ObjectType returns the type of the example that was given to [Open].
func (s *Store) ObjectType() reflect.Type { return s.codec.Type() }

func (s *Store) read(ctx context.Context, r recordRange, at []byte, limit int) (entries []informer.Entry, err error) {
	err = s.each(ctx, r, at, limit, func(i item) error {
		obj, err := s.decode(i)
		entries = append(entries, informer.Entry{Key: string(i.key), Object: obj})
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// decode returns the object of a record. If it cannot be decoded, it never will be, so the next
// Open sets the file aside.
func (s *Store) decode(i item) (informer.AnyObject, error) {
	obj, err := s.codec.decode(i.key, i.payload)
	if err != nil {
		return nil, errors.Join(err, s.markDamaged(err))
	}
	return obj, nil
}
