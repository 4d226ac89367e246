package index

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// pageSize is how many objects a scanner is asked for at a time.
const pageSize = 500

// scanner is a store that can be read in parts. The public Scanner has the contract.
type scanner interface {
	Scan(ctx context.Context, after string, limit int) ([]any, error)
}

// Scan reads all objects of a store: in pages if the store has a method Scan, and otherwise
// all at once. It is made by NewScan, may be copied, and may be used from any goroutine. It
// blocks as long as the store does.
type Scan struct {
	store cache.Store
	paged scanner // the store, or nil
}

// NewScan returns a Scan of store.
func NewScan(store cache.Store) Scan {
	s := Scan{store: store}
	s.paged, _ = store.(scanner)
	return s
}

// Paged reports whether the store is read in pages. If it is not, Page never returns an
// error, because List does not.
func (s Scan) Paged() bool { return s.paged != nil }

// Page returns the objects with the next keys after a key, and the last of these keys. With
// after "" it begins at the first object. A last of "" says that there are no more objects
// after this page. The slice may belong to the store and must not be changed. A store that
// returns keys out of order is an error, as it could be read forever.
func (s Scan) Page(ctx context.Context, after string) (objs []any, last string, err error) {
	if s.paged == nil {
		return s.store.List(), "", nil
	}
	if objs, err = s.paged.Scan(ctx, after, pageSize); err != nil || len(objs) == 0 {
		return nil, "", err
	}
	m, err := object.Meta(objs[len(objs)-1])
	if err != nil {
		return nil, "", fmt.Errorf("after %q: %w", after, err)
	}
	if last = object.Key(m); last <= after {
		return nil, "", fmt.Errorf("the page after %q ends with %q, which does not come after it", after, last)
	}
	return objs, last, nil
}

// Each calls visit for every object, until visit returns false. It returns the first error
// of Page.
func (s Scan) Each(ctx context.Context, visit func(any) bool) error {
	for after := ""; ; {
		objs, last, err := s.Page(ctx, after)
		if err != nil {
			return err
		}
		for _, obj := range objs {
			if !visit(obj) {
				return nil
			}
		}
		if last == "" {
			return nil
		}
		after = last
	}
}

// All returns every object of a store. An object of another type than T is an error.
func All[T object.Object](ctx context.Context, s Scan) ([]T, error) {
	if s.paged == nil {
		return typed[T](s.store.List())
	}
	var stored []any
	err := s.Each(ctx, func(obj any) bool {
		stored = append(stored, obj)
		return true
	})
	if err != nil {
		return nil, err
	}
	return typed[T](stored)
}

// Get returns the object that a store has under key. It returns the error of the store, or
// one that wraps object.ErrWrongType if the object is no T.
func Get[T object.Object](store cache.Store, key string) (obj T, exists bool, err error) {
	stored, exists, err := store.GetByKey(key)
	if err != nil || !exists {
		return obj, false, err
	}
	obj, ok := stored.(T)
	if !ok {
		return obj, false, fmt.Errorf("the store holds under %s a %T, which %w", key, stored, object.ErrWrongType)
	}
	return obj, true, nil
}

// typed returns the objects that a store has listed as Ts.
func typed[T object.Object](stored []any) ([]T, error) {
	objs := make([]T, 0, len(stored))
	for _, s := range stored {
		obj, ok := s.(T)
		if !ok {
			return nil, fmt.Errorf("the store holds a %T", s)
		}
		objs = append(objs, obj)
	}
	return objs, nil
}
