package valkey

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/valkey-io/valkey-go"
	"k8s.io/client-go/tools/cache"
)

// The limits of one request that reads.
const (
	pageObjects = 500
	pageBytes   = 4 << 20
)

// Add stores an object, whether or not its key exists. Like every write except Apply and
// Forget, it removes the bookmark.
func (s *Store) Add(obj any) error { return s.writeOne("add", obj, s.storing) }

// Update stores an object; see Add.
func (s *Store) Update(obj any) error { return s.writeOne("update", obj, s.storing) }

// Delete removes the object under the key of obj and keeps no tombstone; see Add. obj may be
// an object of any type or a cache.DeletedFinalStateUnknown.
func (s *Store) Delete(obj any) error { return s.writeOne("delete", obj, removing) }

func (s *Store) writeOne(op string, obj any, as func(any) (change, error)) error {
	c, err := as(obj)
	if err == nil {
		err = s.write(context.Background(), batch{changes: []change{c}})
	}
	if err != nil {
		return fmt.Errorf("valkey: %s %q: %w", op, c.key, err)
	}
	return nil
}

// Replace stores objects in place of all others. It removes the bookmark and keeps the tombstones.
// The resourceVersion is not used. Many objects are stored in several steps: if one fails, those of the
// steps before are stored.
func (s *Store) Replace(objs []any, _ string) error {
	var changes []change
	for _, obj := range objs {
		c, err := s.storing(obj)
		if err != nil {
			return fmt.Errorf("valkey: replace: %q: %w", c.key, err)
		}
		changes = append(changes, c)
	}
	b := batch{clear: true}
	for {
		size := 0
		for len(changes) > 0 && len(b.changes) < pageObjects && size < pageBytes {
			size += len(changes[0].payload)
			b.changes, changes = append(b.changes, changes[0]), changes[1:]
		}
		if err := s.write(context.Background(), b); err != nil {
			return fmt.Errorf("valkey: replace: %w", err)
		}
		if len(changes) == 0 {
			return nil
		}
		b = batch{}
	}
}

// Get returns the object under the key of obj.
func (s *Store) Get(obj any) (item any, exists bool, err error) {
	key, err := cache.MetaNamespaceKeyFunc(obj)
	if err != nil {
		return nil, false, fmt.Errorf("valkey: get: %w", err)
	}
	return s.GetByKey(key)
}

// GetByKey returns the object under a key.
func (s *Store) GetByKey(key string) (obj any, exists bool, err error) {
	reply, err := s.read(context.Background(), getScript, key)
	if valkey.IsValkeyNil(err) {
		return nil, false, nil
	}
	if err == nil {
		var payload string
		if payload, err = reply.ToString(); err == nil {
			obj, err = s.decode(key, payload)
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("valkey: get %q: %w", key, err)
	}
	return obj, true, nil
}

// List returns all objects, in the order of their keys; they are all in memory then. It reads
// like Scan. It cannot return an error: it reports the error to Options.ErrorHandler and
// returns nil, never a part of the objects. An informer calls Scan instead.
func (s *Store) List() []any {
	var objs []any
	for after := ""; ; {
		page, err := s.page(context.Background(), after, pageObjects)
		for i := 0; err == nil && i < len(page); i += 2 {
			var obj any
			if obj, err = s.decode(page[i], page[i+1]); err == nil {
				objs = append(objs, obj)
			}
		}
		if err != nil {
			s.opts.ErrorHandler(fmt.Errorf("valkey: %s: list: %w", s.place.prefix, err))
			return nil
		}
		if len(page) == 0 {
			return objs
		}
		after = page[len(page)-2]
	}
}

// ListKeys returns the keys of all objects, in order; see List.
func (s *Store) ListKeys() []string {
	var keys []string
	for after := ""; ; {
		page, err := s.page(context.Background(), after, pageObjects)
		if err != nil {
			s.opts.ErrorHandler(fmt.Errorf("valkey: %s: list keys: %w", s.place.prefix, err))
			return nil
		}
		if len(page) == 0 {
			return keys
		}
		for i := 0; i < len(page); i += 2 {
			after = page[i]
			keys = append(keys, after)
		}
	}
}

// Scan returns up to limit objects after a key, in the order of their keys. Up to 500 objects that
// take no more than 4 MiB are the state of one moment; more are read in several steps. Scan keeps
// nothing between calls.
func (s *Store) Scan(ctx context.Context, after string, limit int) ([]any, error) {
	begin := after
	if limit < 1 {
		return nil, fmt.Errorf("valkey: scan after %q: %w", begin, errors.New("the limit is less than 1"))
	}
	var objs []any
	for len(objs) < limit {
		page, err := s.page(ctx, after, min(limit-len(objs), pageObjects))
		if err != nil {
			return nil, fmt.Errorf("valkey: scan after %q: %w", begin, err)
		}
		if len(page) == 0 {
			break
		}
		for i := 0; i < len(page); i += 2 {
			after = page[i]
			obj, err := s.decode(after, page[i+1])
			if err != nil {
				return nil, fmt.Errorf("valkey: scan after %q: %w", begin, err)
			}
			objs = append(objs, obj)
		}
	}
	return objs, nil
}

// page returns keys and encoded objects after a key, in turn.
func (s *Store) page(ctx context.Context, after string, limit int) ([]string, error) {
	reply, err := s.read(ctx, pageScript, after, strconv.Itoa(limit), strconv.Itoa(pageBytes))
	if err != nil {
		return nil, err
	}
	page, err := reply.AsStrSlice()
	if err != nil {
		return nil, err
	}
	return page[pageHead:], nil
}

// pageHead is how many elements of a page are not about objects.
const pageHead = 5

// decode returns the object that is stored under a key.
func (s *Store) decode(key, payload string) (any, error) {
	obj, err := s.codec.Decode([]byte(payload))
	if err != nil {
		return nil, fmt.Errorf("%q cannot be decoded: %w", key, err)
	}
	return obj, nil
}

// Resync does nothing.
func (s *Store) Resync() error { return nil }

// Bookmark does nothing: only Apply sets the bookmark that Resume returns.
func (s *Store) Bookmark(string) {}

// LastStoreSyncResourceVersion returns "": an informer resumes from the bookmark instead.
func (s *Store) LastStoreSyncResourceVersion() string { return "" }
