package informer

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/customcacheinformer/informer/internal/object"
)

type slotKey struct {
	objects reflect.Type
	scope   string
}

// slot is the place of an informer that GetOrAdd has made or is making. Group.mu protects member until
// made is closed.
type slot struct {
	member Member        // nil until the informer is a member of the group
	err    error         // why there is no informer
	made   chan struct{} // closed when member or err is set for good
}

// GetOrAdd returns the informer of g for objects of type T and for scope. The first call for T and
// scope calls construct, adds the informer to g and returns it. Later calls return the same informer
// and ignore construct. So all callers for T and scope should pass the same function. scope is any text
// that distinguishes the informers over one type, such as a namespace or a selector. If there is only
// one, use "". Informers of several scopes need different Options.Name, see [Group.Add].
//
// The types *unstructured.Unstructured, *metav1.PartialObjectMetadata and AnyObject do not name a kind.
// For these types, scope must name the kind, such as with gvr.String(), and must not be "". GetOrAdd does
// not notice if two kinds have the same scope: the second call returns the informer of the first kind.
//
// GetOrAdd blocks while construct runs, also in another call for T and scope. It may be called before
// and while g runs, from any goroutine. No lock is held while construct runs, so construct may call
// GetOrAdd for another T or scope. Two such functions that wait for each other's informers block
// forever.
//
// If construct returns an error, the call that runs it and all calls that wait for it return this error
// unchanged. If the informer cannot be added (see [Group.Add]), they return an error too. If construct
// panics, the call that runs it panics, and the others return an error. GetOrAdd also returns an error if
// g or construct is nil, or if scope is "" and must not be. No error is remembered: the next call tries
// again.
func GetOrAdd[T Object](g *Group, scope string, construct func() (*CustomCacheInformer[T], error)) (*CustomCacheInformer[T], error) {
	switch {
	case g == nil:
		return nil, errors.New("informer: Group: GetOrAdd: the group is nil")
	case construct == nil:
		return nil, errors.New("informer: Group: GetOrAdd: construct is nil")
	case scope == "" && object.AnyKind(reflect.TypeFor[T]()):
		return nil, fmt.Errorf("informer: Group: GetOrAdd: the scope is empty, and %v does not name the kind of the objects: begin the scope with the resource, such as gvr.String()", reflect.TypeFor[T]())
	}
	m, err := g.getOrMake(slotKey{reflect.TypeFor[T](), scope}, func() (Member, error) { return construct() })
	if err != nil {
		return nil, err
	}
	return m.(*CustomCacheInformer[T]), nil
}

// getOrMake returns the informer for key. The first call for key makes it, and other calls wait for
// that.
func (g *Group) getOrMake(key slotKey, construct func() (Member, error)) (Member, error) {
	g.mu.Lock()
	s, known := g.shared[key]
	if !known {
		s = &slot{err: errors.New("informer: Group: GetOrAdd: construct panicked"), made: make(chan struct{})}
		if g.shared == nil {
			g.shared = map[slotKey]*slot{}
		}
		g.shared[key] = s
	}
	g.mu.Unlock()
	if known {
		<-s.made
		return s.member, s.err
	}

	defer func() {
		if s.err != nil { // also after a panic, so that no call waits forever
			g.mu.Lock()
			delete(g.shared, key)
			g.mu.Unlock()
		}
		close(s.made)
	}()
	m, err := construct()
	if err == nil {
		if err = g.addMember(m, s); err != nil {
			err = fmt.Errorf("informer: Group: GetOrAdd: %w", err)
		}
	}
	s.err = err
	return m, err
}

// show adds an informer that others run to what Health returns, and gives it the ErrorHandler, the
// Observer and the Lists of g.
func (g *Group) show(guest *CustomCacheInformer[AnyObject]) {
	g.Health() // forgets stopped guests, also if no one else ever calls it
	g.mu.Lock()
	defer g.mu.Unlock()
	guest.adopt(g.giveLocked())
	g.guests = append(g.guests, guest)
}
