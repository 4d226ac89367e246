package disk

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/internal/stored"
)

// Get returns the object with this key. exists is false if there is none. The object belongs
// to the caller. Get waits only for the disk.
func (s *Store) Get(ctx context.Context, key string) (obj informer.AnyObject, exists bool, err error) {
	found := item{key: []byte(key)}
	if err = ctx.Err(); err == nil {
		err = s.view(func(tx *bbolt.Tx) (err error) {
			if key != "" { // bbolt would return the first key for an empty one
				found.payload, err = get(tx.Bucket([]byte(objectsBucket)), found.key)
			}
			return err
		})
	}
	if err == nil && found.payload != nil {
		obj, err = s.decode(found)
	}
	if err != nil {
		return nil, false, fmt.Errorf("disk: get %q: %w", key, err)
	}
	return obj, found.payload != nil, nil
}

// Resume returns the bookmark that the last Apply set, or "" if there is none, see
// informer.Durable. It waits only for the disk.
func (s *Store) Resume(ctx context.Context) (bookmark string, err error) {
	err = ctx.Err()
	if err == nil {
		err = s.view(func(tx *bbolt.Tx) error {
			stored, err := get(tx.Bucket([]byte(aboutBucket)), []byte(bookmarkKey))
			bookmark = string(stored)
			return err
		})
	}
	if err != nil {
		return "", fmt.Errorf("disk: resume: %w", err)
	}
	return bookmark, nil
}

// Apply makes changes in their order, keeps deleted objects as tombstones, unless
// Change.NoTombstone is set, maintains the indexes and sets the bookmark, in one transaction.
// Whenever the process ends, the file has all of it or nothing. By default it is on the disk when
// Apply returns. Apply waits for another write that is under way, and then for the disk. If ctx
// ends before the commit begins, Apply returns an error that wraps that of ctx, and has no effect.
// A commit that has begun does not stop when ctx ends. If Apply returns an error that wraps
// informer.ErrPermanent, it has no effect either. After any other error, the changes may or may not
// have been made, and the call may be repeated.
//
// With SurvivePowerLoss, the default, a transaction costs two calls of fdatasync, however large it
// is, and another sync if the file has to grow. Apply does not wait for other writes to share them,
// because there is only one writer. While one Apply syncs, arriving changes queue up at the
// informer, and up to 1000 of them become the next Apply. So an informer under load commits in
// groups, and an idle one commits at once.
func (s *Store) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	b := batch{changes: make([]change, len(changes)), bookmark: bookmark}
	for i, change := range changes {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("disk: apply: %w", err)
		}
		var err error
		if b.changes[i], err = s.codec.of(change); err != nil {
			return fmt.Errorf("disk: apply: %s %q: %w", stored.Verb(change), change.Key, err)
		}
	}
	if err := s.write(ctx, b); err != nil {
		return fmt.Errorf("disk: apply: %w", err)
	}
	return nil
}

// Scan returns up to limit objects in the order of their keys, beginning with the first key
// greater than after. limit must be at least 1. Scan reads in steps of up to a thousand
// objects or some 4 MiB. Each step sees the state of one moment. Scan keeps nothing between
// calls, and waits only for the disk.
func (s *Store) Scan(ctx context.Context, after string, limit int) ([]informer.Entry, error) {
	err := errors.New("the limit is less than 1")
	var entries []informer.Entry
	if limit > 0 {
		entries, err = s.read(ctx, bucketRange{objectsBucket}, []byte(after), limit)
	}
	if err != nil {
		return nil, fmt.Errorf("disk: scan after %q: %w", after, err)
	}
	return entries, nil
}

// Tombstones returns the deleted objects that Forget has not removed yet, in any order. It
// reads them page by page, as Scan reads objects.
func (s *Store) Tombstones(ctx context.Context) ([]informer.Entry, error) {
	var entries []informer.Entry
	err := s.each(ctx, bucketRange{tombstonesBucket}, nil, unlimited, func(i item) error {
		i.key = buried(i.key)
		obj, err := s.decode(i)
		entries = append(entries, informer.Entry{Key: string(i.key), Object: obj})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("disk: tombstones: %w", err)
	}
	return entries, nil
}

// Forget removes tombstones, by key and UID, in one transaction. It ignores tombstones that
// do not exist. It waits as Apply does.
func (s *Store) Forget(ctx context.Context, tombstones map[string][]types.UID) error {
	if err := s.forget(ctx, tombstones); err != nil {
		return fmt.Errorf("disk: forget: %w", err)
	}
	return nil
}

func (s *Store) forget(ctx context.Context, tombstones map[string][]types.UID) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	defer s.release()
	return s.update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(tombstonesBucket))
		for key, uids := range tombstones {
			for _, uid := range uids {
				if err := remove(bucket, tombstoneKey([]byte(key), uid)); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	})
}
