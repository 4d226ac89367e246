package index

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

// pageSize is the limit with which a Keyed store is scanned.
const pageSize = 500

// Keyed is a store that is given keys and returns them with its objects. The public Durable describes the
// contract.
type Keyed interface {
	Get(ctx context.Context, key string) (obj any, exists bool, err error)
	Scan(ctx context.Context, after string, limit int) (object.Entries, error)
}

// Scan reads a store by key or as a whole, a Keyed store in pages and any other store at once. NewScan and
// ScanKeyed make a Scan. It may be copied, and used from any goroutine. It blocks as long as the store does.
type Scan struct {
	plain cache.Store
	keyed Keyed // nil if plain is set
}

// NewScan returns a Scan of a store that returns objects without keys.
func NewScan(store cache.Store) Scan { return Scan{plain: store} }

// ScanKeyed returns a Scan of a store that is given keys.
func ScanKeyed(store Keyed) Scan { return Scan{keyed: store} }

// Paged reports whether Scan reads the store in pages. If not, Page never returns an error, because List does
// not.
func (s Scan) Paged() bool { return s.keyed != nil }

// Get returns the value that the store has under key. exists is false if there is none.
func (s Scan) Get(ctx context.Context, key string) (stored any, exists bool, err error) {
	if s.keyed == nil {
		return s.plain.GetByKey(key)
	}
	return s.keyed.Get(ctx, key)
}

// Page returns the objects with the next keys after the key after, and the last of these keys. If after is "",
// it begins at the first object. If last is "", there are no more objects after this page. Page returns the
// error of the store, or an error if the keys are out of order, because it could otherwise read forever.
func (s Scan) Page(ctx context.Context, after string) (page object.Entries, last string, err error) {
	if s.keyed == nil {
		return object.Unkeyed(s.plain.List()), "", nil
	}
	page, err = s.keyed.Scan(ctx, after, pageSize)
	if err != nil || page.Len() == 0 {
		return object.Entries{}, "", err
	}
	if last = page.At(page.Len() - 1).Key(); last <= after {
		return object.Entries{}, "", fmt.Errorf("the page after %q ends with %q, which does not come after it", after, last)
	}
	return page, last, nil
}

// Each calls visit for every object, until visit returns false. It stops at an error of Page and returns it.
func (s Scan) Each(ctx context.Context, visit func(object.Entry) bool) error {
	return s.EachUnder(ctx, "", visit)
}

// EachUnder is like Each for the objects whose keys begin with prefix. For a store without pages, prefix must
// be "".
func (s Scan) EachUnder(ctx context.Context, prefix string, visit func(object.Entry) bool) error {
	for after := prefix; ; {
		page, last, err := s.Page(ctx, after)
		if err != nil {
			return err
		}
		for n := range page.Len() {
			if e := page.At(n); prefix != "" && !strings.HasPrefix(e.Key(), prefix) || !visit(e) {
				return nil
			}
		}
		if last == "" {
			return nil
		}
		after = last
	}
}

// All returns every object of a store whose key begins with prefix. For a store without pages, it ignores
// prefix. It returns an error if the store fails or an object is not a T.
func All[T object.Object](ctx context.Context, s Scan, prefix string) (objs []T, err error) {
	if s.keyed == nil {
		return typed[T](object.Unkeyed(s.plain.List()))
	}
	var wrong error
	err = s.EachUnder(ctx, prefix, func(e object.Entry) bool {
		var obj T
		obj, wrong = asStored[T](e)
		objs = append(objs, obj)
		return wrong == nil
	})
	if err == nil {
		err = wrong
	}
	if err != nil {
		return nil, err
	}
	return objs, nil
}

// Get returns the object that a store has under key. It returns the error of the store, or an error that wraps
// object.ErrWrongType if the object is not a T.
func Get[T object.Object](ctx context.Context, s Scan, key string) (obj T, exists bool, err error) {
	stored, exists, err := s.Get(ctx, key)
	if err != nil || !exists {
		return obj, false, err
	}
	obj, ok := stored.(T)
	if !ok {
		return obj, false, fmt.Errorf("the store holds under %s a %T, which %w", key, stored, object.ErrWrongType)
	}
	return obj, true, nil
}

func typed[T object.Object](found object.Entries) ([]T, error) {
	objs := make([]T, 0, found.Len())
	for n := range found.Len() {
		obj, err := asStored[T](found.At(n))
		if err != nil {
			return nil, err
		}
		objs = append(objs, obj)
	}
	return objs, nil
}

func asStored[T object.Object](e object.Entry) (T, error) {
	obj, ok := e.Object.(T)
	if !ok {
		return obj, fmt.Errorf("the store holds a %T", e.Object)
	}
	return obj, nil
}
