package valkey

import (
	"context"
	"fmt"
	"strconv"

	"github.com/valkey-io/valkey-go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/store/internal/stored"
)

// Resume returns the bookmark that the last Apply set, or "" if there is none, see informer.Durable.
// It waits for the server for at most 10 seconds.
func (s *Store) Resume(ctx context.Context) (bookmark string, err error) {
	fields, err := s.about(ctx, "bookmark")
	if err != nil {
		return "", fmt.Errorf("valkey: resume: %w", err)
	}
	return fields[0], nil
}

// Apply makes changes in their order, keeps deleted objects as tombstones, unless Change.NoTombstone is
// set, and sets the bookmark, in one step: the server does all of it or nothing. If the bookmarks are versions of the API server,
// the same step adds the changes to the log, from which a [Source] reads them. If the changes take
// more than 32 MiB together, Apply returns an error that wraps informer.ErrPermanent, so that an informer
// makes them in parts. An Apply whose error wraps informer.ErrPermanent, ErrFenced or ErrLost has
// had no effect. After other errors, the changes may or may not have been made, and the call may be
// repeated. When ctx ends, Apply returns within a second.
func (s *Store) Apply(ctx context.Context, changes []informer.Change, bookmark string) error {
	b, size := batch{bookmark: bookmark}, 0
	for _, change := range changes {
		c, err := s.changeOf(change)
		if err != nil {
			return fmt.Errorf("valkey: apply: %s %q: %w", stored.Verb(change), change.Key, err)
		}
		b.changes = append(b.changes, c)
		if size += len(c.payload); size > maxBytes {
			return fmt.Errorf("valkey: apply: %d changes are more than %d bytes: %w", len(changes), maxBytes, informer.ErrPermanent)
		}
	}
	if err := s.write(ctx, b); err != nil {
		return fmt.Errorf("valkey: apply: %w", err)
	}
	return nil
}

// Tombstones returns the deleted objects that Forget has not removed yet, in any order. It reads them
// in steps, each of which waits for the server for at most 10 seconds.
func (s *Store) Tombstones(ctx context.Context) ([]informer.Entry, error) {
	entries, err := s.tombstones(ctx)
	if err != nil {
		return nil, fmt.Errorf("valkey: tombstones: %w", err)
	}
	return entries, nil
}

func (s *Store) tombstones(ctx context.Context) (entries []informer.Entry, err error) {
	seen := map[string]bool{} // a scan may return a tombstone twice
	for cursor := uint64(0); ; {
		page, err := s.scanTombstones(ctx, cursor)
		if err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(page.Elements); i += 2 {
			name := page.Elements[i]
			if seen[name] {
				continue
			}
			seen[name] = true
			obj, err := s.decode(name, page.Elements[i+1])
			if err != nil {
				return nil, fmt.Errorf("tombstone %w", err)
			}
			entries = append(entries, informer.Entry{Key: keyOf(name), Object: obj})
		}
		if cursor = page.Cursor; cursor == 0 {
			_, err := s.about(ctx) // nothing was missing meanwhile
			return entries, err
		}
	}
}

// pageTombstones is about how many tombstones one request returns. Each may have 32 MiB.
const pageTombstones = 16

func (s *Store) scanTombstones(ctx context.Context, cursor uint64) (valkey.ScanEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return do(ctx, s.client, s.client.B().Hscan().Key(s.place.keys[3]).Cursor(cursor).Count(pageTombstones).Build()).AsScanEntry()
}

// Forget removes tombstones, by key and UID, in one step. It ignores tombstones that do not exist. It
// waits and fails as Apply does.
func (s *Store) Forget(ctx context.Context, tombstones map[string][]types.UID) error {
	b := batch{keeps: true}
	for key, uids := range tombstones {
		for _, uid := range uids {
			b.forget = append(b.forget, tombstone(key, uid))
		}
	}
	if err := s.write(ctx, b); err != nil {
		return fmt.Errorf("valkey: forget: %w", err)
	}
	return nil
}

// about returns the fields of the store that have these names. With no names, it only checks that the
// store is whole and that s is still its writer.
func (s *Store) about(ctx context.Context, names ...string) ([]string, error) {
	reply, err := s.read(ctx, aboutScript, names...)
	if err != nil {
		return nil, err
	}
	return reply.AsStrSlice()
}

func (s *Store) read(ctx context.Context, script luaScript, args ...string) (valkey.ValkeyMessage, error) {
	if err := s.Err(); err != nil {
		return valkey.ValkeyMessage{}, err
	}
	reply, err := read(ctx, s.client, s.place, script, append([]string{s.session, s.confirmed()}, args...)...)
	return reply, s.judge(err)
}

// confirmed returns the number of the last confirmed write. The server must have it.
func (s *Store) confirmed() string { return strconv.FormatInt(s.written.Load(), 10) }
