package valkey

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/valkey-io/valkey-go"

	"github.com/customcacheinformer/informer"
)

// These are the limits of one request that reads.
const (
	pageObjects = 500
	pageBytes   = 4 << 20
)

// Get returns the object with this key. exists is false if there is none. Get waits for the
// server for at most 10 seconds.
func (s *Store) Get(ctx context.Context, key string) (obj informer.AnyObject, exists bool, err error) {
	reply, err := s.read(ctx, getScript, key)
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

// Scan returns up to limit objects in the order of their keys, beginning with the first key
// greater than after. limit must be at least 1. Scan reads in steps of up to 500 objects or
// some 4 MiB. Each step sees the state of one moment, and waits for the server for at most 10
// seconds. Scan keeps nothing between calls.
func (s *Store) Scan(ctx context.Context, after string, limit int) ([]informer.Entry, error) {
	begin := after
	if limit < 1 {
		return nil, fmt.Errorf("valkey: scan after %q: %w", begin, errors.New("the limit is less than 1"))
	}
	var entries []informer.Entry
	for len(entries) < limit {
		page, err := s.page(ctx, after, min(limit-len(entries), pageObjects))
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
			entries = append(entries, informer.Entry{Key: after, Object: obj})
		}
	}
	return entries, nil
}

// page returns up to limit objects after a key: each key, followed by the encoded object.
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

// pageHead is how many elements come before the objects of a page.
const pageHead = 5

func (s *Store) decode(key, payload string) (informer.AnyObject, error) {
	obj, err := s.codec.Decode([]byte(payload))
	if err != nil {
		return nil, fmt.Errorf("%q cannot be decoded: %w", key, err)
	}
	return obj.(informer.AnyObject), nil // the example is one
}
