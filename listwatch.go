package informer

import (
	"context"
	"errors"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/customcacheinformer/informer/internal/object"
)

// ListWatch makes a source for [New] of a client for one resource: what
// client.CoreV1().Pods("") returns goes straight in, and so do the resource
// interfaces of the dynamic and the metadata client. Each tweak may change the
// options of every request, for example its selectors; nil ones are ignored.
//
// client-go's fakes are recognised, and asked to LIST and not to stream, which
// they cannot; one that hides behind a type of your own is not, and takes 10 s to
// sync unless Options.WatchList is WatchListOff. Fakes have further limits that no reader can mend: their objects
// have no resourceVersions, so that WaitForResourceVersion and ResourceVersion
// are of no use with them; a delete between the LIST and the WATCH is lost; and
// a writer that makes more than 100 changes without letting other goroutines
// run may panic inside the fake, because a fake's watch holds 100 events. See
// package informertest for a source that has none of these.
//
// ListWatch makes no request. If client is nil, New says so.
func ListWatch[L runtime.Object](client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}, tweak ...func(*metav1.ListOptions)) cache.ListerWatcher {
	tweaked := func(opts metav1.ListOptions) metav1.ListOptions {
		for _, f := range tweak {
			if f != nil {
				f(&opts)
			}
		}
		return opts
	}
	return &clientListWatch{
		ListWatch: cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				list, err := client.List(ctx, tweaked(opts))
				if err != nil {
					return nil, err // and not a typed nil in an interface
				}
				return list, nil
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return client.Watch(ctx, tweaked(opts))
			},
		},
		client: client,
	}
}

type clientListWatch struct {
	cache.ListWatch
	client any
}

// IsWatchListSemanticsUnSupported is how client-go asks whether a source is
// unable to stream its first state.
func (l *clientListWatch) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.client) || isFake(l.client)
}

func (l *clientListWatch) check() error {
	if object.IsNil(l.client) {
		return errors.New("the client given to ListWatch is nil")
	}
	return nil
}

// isFake reports whether client comes from one of client-go's fake packages. The
// marker that client-go looks for sits on the clientset and not on what its
// methods return; these have other marks.
func isFake(client any) bool {
	if _, ok := client.(interface{ ClearActions() }); ok {
		return true
	}
	t := reflect.TypeOf(client)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.HasSuffix(t.PkgPath(), "/fake")
}

// checkSource returns an error if lw cannot be asked for anything.
func checkSource(lw cache.ListerWatcher) error {
	if object.IsNil(lw) {
		return errors.New("the source (lw) is nil")
	}
	switch l := lw.(type) {
	case *clientListWatch:
		return l.check()
	case *cache.ListWatch:
		//nolint:staticcheck // what is deprecated may be set all the same
		if l.ListFunc == nil && l.ListWithContextFunc == nil {
			return errors.New("the source (lw) is a cache.ListWatch without ListFunc or ListWithContextFunc")
		}
		//nolint:staticcheck // likewise
		if l.WatchFunc == nil && l.WatchFuncWithContext == nil {
			return errors.New("the source (lw) is a cache.ListWatch without WatchFunc or WatchFuncWithContext")
		}
	}
	return nil
}
