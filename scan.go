package informer

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// scanPage is how many objects a Scanner is asked for at a time.
const scanPage = 500

// scan reads what a store holds: in pages if it is a Scanner, else all at once.
type scan struct {
	store   cache.Store
	scanner Scanner // the store, or nil
}

func newScan(store cache.Store) scan {
	s := scan{store: store}
	s.scanner, _ = store.(Scanner)
	return s
}

// page returns the objects under the next keys after the given one, and the last of
// these keys, or "" if all that come after are among them.
func (s scan) page(ctx context.Context, after string) (objs []any, last string, err error) {
	if s.scanner == nil {
		return s.store.List(), "", nil
	}
	if objs, err = s.scanner.Scan(ctx, after, scanPage); err != nil || len(objs) == 0 {
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

// each calls visit for every object, until visit returns false.
func (s scan) each(ctx context.Context, visit func(any) bool) error {
	for after := ""; ; {
		objs, last, err := s.page(ctx, after)
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

// all returns every object, as a T. Something of another type is an error.
func all[T Object](ctx context.Context, s scan) ([]T, error) {
	if s.scanner == nil {
		return typed[T](s.store.List())
	}
	var stored []any
	err := s.each(ctx, func(obj any) bool {
		stored = append(stored, obj)
		return true
	})
	if err != nil {
		return nil, err
	}
	return typed[T](stored)
}
