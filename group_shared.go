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

// slot is an informer that GetOrAdd has made or is making. Group.mu protects member until made
// is closed.
type slot struct {
	member Member        // nil until the informer is a member of the group
	err    error         // why there is no informer
	made   chan struct{} // closed when member or err is set for good
}

// GetOrAdd returns the informer of g over objects of type T and with that scope. The first call
// for T and scope calls construct, adds the informer to g and returns it. Later calls return
// the same informer, with the options that it was made with. So one function of the program
// should make all of them. scope is any text that distinguishes two informers over one type,
// such as a namespace or a selector. If there is only one, use "". Informers of several scopes
// need an Options.Name each, see [Group.Add].
//
// *unstructured.Unstructured, *metav1.PartialObjectMetadata and AnyObject do not name the kind of the
// objects. So their scope must, such as with gvr.String(), and may not be "". GetOrAdd does not notice
// two kinds with one scope: the second call would return the informer of the first kind.
//
// GetOrAdd blocks while construct runs, its own or that of another call for T and scope. It may
// be called before and while g runs, from any goroutine. No lock is held while construct runs,
// so construct may call GetOrAdd for another T or scope. Two such functions that call GetOrAdd for
// each other block forever.
//
// All calls that have waited for construct return its error, unchanged, or the error of
// [Group.Add]. The error is not remembered: the next call tries again.
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

// getOrMake returns the informer for key. The first call for key makes it, and other calls wait
// until it is made.
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

// show makes g show an informer that others run, and gives it the fields of g.
func (g *Group) show(guest *CustomCacheInformer[AnyObject]) {
	g.Health() // forgets stopped guests, also if no one else ever calls it
	g.mu.Lock()
	defer g.mu.Unlock()
	guest.adopt(g.giveLocked())
	g.guests = append(g.guests, guest)
}
