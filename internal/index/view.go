package index

import (
	"context"
	"errors"

	"github.com/customcacheinformer/informer/internal/object"
)

// errReadOnly is the error of writes to a view of a Keyed store.
var errReadOnly = errors.New("a durable store is written only by its informer")

// view is a Keyed store as a read-only cache.Store. List and ListKeys cannot return an error. They
// call failed with it, and return nil instead of a part.
type view struct {
	scan   Scan
	failed func(error)
}

func (v view) Add(any) error               { return errReadOnly }
func (v view) Update(any) error            { return errReadOnly }
func (v view) Delete(any) error            { return errReadOnly }
func (v view) Replace([]any, string) error { return errReadOnly }
func (v view) Resync() error               { return nil }
func (v view) Bookmark(string)             {}

func (v view) LastStoreSyncResourceVersion() string { return "" }

func (v view) Get(obj any) (item any, exists bool, err error) {
	key, err := object.CacheKey(obj)
	if err != nil {
		return nil, false, err
	}
	return v.GetByKey(key)
}

func (v view) GetByKey(key string) (item any, exists bool, err error) {
	return v.scan.Get(context.Background(), key)
}

func (v view) List() []any { return all(v, func(e object.Entry) any { return e.Object }) }

func (v view) ListKeys() []string { return all(v, object.Entry.Key) }

func all[E any](v view, of func(object.Entry) E) (es []E) {
	err := v.scan.Each(context.Background(), func(e object.Entry) bool {
		es = append(es, of(e))
		return true
	})
	if err != nil {
		v.failed(err)
		return nil
	}
	return es
}
