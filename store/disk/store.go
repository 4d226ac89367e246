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

// Store keeps objects of one type in a file, with their indexes. It is an
// informer.DurableIndexer. [Open] makes one. It must not be copied. Its methods may be
// called from any goroutine. It has no goroutines of its own, and keeps no objects in
// memory: each call that returns objects decodes them again, so they belong to the caller.
//
// Errors name the operation and the key, if there is one. A write that can never succeed
// returns an error that wraps informer.ErrPermanent, and has no effect. That is so if the
// object is of another type, cannot be encoded or decoded again, or takes more than 32 MiB;
// or if an index function returns an error for it. The same holds for an empty key, a key
// longer than 16 KiB, and a UID longer than 1 KiB. Errors of the operating system, such as
// a full disk, are wrapped; the call may be repeated. Other errors wrap ErrDamaged,
// ErrClosed or the error of ctx.
type Store struct {
	*database
	codec objectCodec
	lock  *os.File
	close func() error

	indexes atomic.Pointer[map[string]*index] // the indexes in use; only the writer changes the map
	dormant map[string]bool                   // indexes in the file without a function, and whether they are complete; only for the writer
}

// ObjectType returns the type of the example that was given to [Open]. It does not block.
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

// decode returns the object of a record. If the object cannot be decoded, decode marks the
// file as damaged, because a later attempt would fail too. Then the next Open sets the file
// aside.
func (s *Store) decode(i item) (informer.AnyObject, error) {
	obj, err := s.codec.decode(i.key, i.payload)
	if err != nil {
		return nil, errors.Join(err, s.markDamaged(err))
	}
	return obj, nil
}
