package informer

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// shareKey is what tells two shared informers of a group apart.
type shareKey struct {
	objects reflect.Type
	scope   string
}

// share is an informer that Shared has made or is making. Group.mu protects member
// until made is closed.
type share struct {
	member Member // nil until it is one
	err    error
	made   chan struct{} // closed when there is either
}

// Shared returns the informer over objects of type T that g has under scope. The
// first call for T and scope makes it, with make, and adds it to g; the others get
// that one, with the options that it was made with: so have them all made by one
// function of the program. scope is whatever tells apart
// two informers over one type, such as a namespace or a selector; where there is
// only one, "" will do.
//
// Shared blocks while make runs, its own or that of another call for T and scope.
// It may be called before and while g runs; nothing is locked meanwhile, and make
// may call Shared for another T or scope, unless two of them ask for each other, which
// blocks for ever. An error of make's is returned as it is,
// and one of [Group.Add] too, by all calls that have waited for it; it is not
// remembered, so that the next call tries again.
func Shared[T Object](g *Group, scope string, make func() (*CustomCacheInformer[T], error)) (*CustomCacheInformer[T], error) {
	switch {
	case g == nil:
		return nil, errors.New("informer: Group: Shared: the group is nil")
	case make == nil:
		return nil, errors.New("informer: Group: Shared: make is nil")
	}
	m, err := g.share(shareKey{reflect.TypeFor[T](), scope}, func() (Member, error) { return make() })
	if err != nil {
		return nil, err
	}
	return m.(*CustomCacheInformer[T]), nil
}

func (g *Group) share(key shareKey, construct func() (Member, error)) (Member, error) {
	g.mu.Lock()
	s, known := g.shared[key]
	if !known {
		s = &share{err: errors.New("informer: Group: Shared: make has not returned, but panicked"), made: make(chan struct{})}
		if g.shared == nil {
			g.shared = map[shareKey]*share{}
		}
		g.shared[key] = s
	}
	g.mu.Unlock()
	if known {
		<-s.made
		return s.member, s.err
	}

	defer func() {
		if s.err != nil { // also after a panic: nobody must wait for ever
			g.mu.Lock()
			delete(g.shared, key)
			g.mu.Unlock()
		}
		close(s.made)
	}()
	m, err := construct()
	if err == nil {
		if err = g.add(m, s); err != nil {
			err = fmt.Errorf("informer: Group: Shared: %w", err)
		}
	}
	s.err = err
	return m, err
}

// SharedIndexInformerFunc is the function of that name for informers that g shows and
// that others run, such as those of a controller-runtime manager:
//
//	cache.Options{NewInformer: group.SharedIndexInformerFunc(nil)}
//
// They have g's Observer and ErrorHandler unless they have their own, and are in what
// Health, Ready, Live and the page of package debug say of g until they stop. They are no
// members: neither Run nor WaitForSync takes notice of them. configure may be nil, for
// default options. What it returns may be called from any goroutine, also before and without
// g's Run, and does not block.
func (g *Group) SharedIndexInformerFunc(configure func(example runtime.Object) (Options[AnyObject], error)) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	if configure == nil {
		configure = func(runtime.Object) (Options[AnyObject], error) { return Options[AnyObject]{}, nil }
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hosting = true
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		s := configuredShared(configure, lw, example, resync, indexers)
		s.core.adopt(g.ErrorHandler, g.Observer)
		g.look() // whoever makes informers again and again need not be looked at
		g.mu.Lock()
		defer g.mu.Unlock()
		g.guests = append(g.guests, s.core)
		return s
	}
}
