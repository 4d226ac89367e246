package serving

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// source is the caller's storage as the cacher sees it. The cacher lists and watches with a ctx that
// never ends, and waits for both when it stops. Here the ctx ends with the cache.
type source struct {
	storage.Interface
	ctx context.Context
}

// GetList implements storage.Interface.
func (s source) GetList(_ context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	return s.Interface.GetList(s.ctx, key, opts, out)
}

// Watch implements storage.Interface.
func (s source) Watch(_ context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	return s.Interface.Watch(s.ctx, key, opts)
}
