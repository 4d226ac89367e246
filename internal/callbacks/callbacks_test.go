package callbacks_test

import (
	"context"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
)

// forbidden are the calls that are not made, because a doc comment forbids them. callback and
// method are patterns of path.Match. The comment of the declaration has the sentence.
var forbidden = []struct{ callback, method, declaration, sentence string }{
	{"*", "Indexer.Add", "Options.Store", onlyThisInformer},
	{"*", "Indexer.Update", "Options.Store", onlyThisInformer},
	{"*", "Indexer.Delete", "Options.Store", onlyThisInformer},
	{"*", "Indexer.Replace", "Options.Store", onlyThisInformer},
	{"*", "Group.Remove(own)", "Group.Remove", "So it must not be called in a callback of m's own, such as a watcher's or reconcile."},
	{"Options.Indexers", "CustomCacheInformer.*", "Options.Indexers", storeIsLocked},
	{"Options.Indexers", "SharedIndexInformer.*", "Options.Indexers", storeIsLocked},
	{"Options.Indexers", "Indexer.*", "Options.Indexers", storeIsLocked},
	{"SharedIndexInformer.AddIndexers(f)", "CustomCacheInformer.*", "ClientGo.NewSharedIndexInformer", storeIsLockedToo},
	{"SharedIndexInformer.AddIndexers(f)", "SharedIndexInformer.*", "ClientGo.NewSharedIndexInformer", storeIsLockedToo},
	{"SharedIndexInformer.AddIndexers(f)", "Indexer.*", "ClientGo.NewSharedIndexInformer", storeIsLockedToo},
}

const (
	onlyThisInformer = "Only this informer may write to it while it runs."
	storeIsLocked    = "The functions are called while the store is locked and must not call the informer."
	storeIsLockedToo = "Index functions are called while the store is locked and must not call the informer, as with client-go's."
)

// isForbidden reports whether one of the sentences forbids a call.
func isForbidden(callback, method string) bool {
	for _, f := range forbidden {
		if matches(f.callback, callback) && matches(f.method, method) {
			return true
		}
	}
	return false
}

func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, name)
	return ok
}

// patience is how long a trial may take, in real time. A trial that hangs ends the process then,
// because nothing can stop a goroutine that loops or waits for a mutex.
const patience = 2 * time.Minute

type trial struct {
	store, callback string

	called int
	now    atomic.Pointer[string] // the call under way, nil if there is none
}

func (r *trial) run(t *testing.T) {
	hung := time.AfterFunc(patience, func() { panic(r.underWay() + " hangs: it waits for a mutex, or loops") })
	defer hung.Stop()
	defer func() {
		if v := recover(); v != nil {
			t.Errorf("%s: %v", r.underWay(), v)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, context.WithoutCancel(t.Context()), r.store, func(w *world, c callback) {
			if c.name == r.callback {
				r.visit(w, c)
			}
		})
		w.live()
		if r.now.Load() != nil {
			t.Errorf("%s has not returned", r.underWay())
		}
	})
}

func (r *trial) underWay() string {
	if m := r.now.Load(); m != nil {
		return fmt.Sprintf("%s, called in %s over a %s store,", *m, r.callback, r.store)
	}
	return fmt.Sprintf("the program, after its %s over a %s store,", r.callback, r.store)
}

func (r *trial) visit(w *world, c callback) {
	for _, m := range w.methods(c) {
		if isForbidden(c.name, m.name) {
			continue
		}
		outer := r.now.Swap(&m.name)
		if err := m.do(c.ctx); !w.documented(m, err) {
			w.t.Errorf("%s returned %v", r.underWay(), err)
		}
		r.now.Store(outer)
		r.called++
	}
}

var stores = []string{"plain", "memory", "durable"}

// callbacksOver returns the names of the callbacks that a program has over some kinds of stores.
func callbacksOver(t *testing.T, stores ...string) (names []string) {
	for _, store := range stores {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, context.WithoutCancel(t.Context()), store, func(*world, callback) {})
			names = slices.AppendSeq(names, maps.Keys(w.live()))
		})
	}
	return names
}

// With -short a callback is tried over the first kind of store that has it.
func TestEachMethodWorksInEachCallback(t *testing.T) {
	done := map[string]bool{}
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			for _, name := range callbacksOver(t, store) {
				if testing.Short() && done[name] {
					continue
				}
				done[name] = true
				t.Run(name, func(t *testing.T) {
					r := &trial{store: store, callback: name}
					r.run(t)
					if r.called < 15 { // an index function may call these
						t.Errorf("%s called only %d methods", name, r.called)
					}
				})
			}
		})
	}
}

func TestEachFunctionOfTheOptionsIsACallback(t *testing.T) {
	called := callbacksOver(t, stores...)
	want := slices.Concat(
		functionsIn("Options", reflect.TypeFor[options]()),
		functionsIn("WatcherOptions", reflect.TypeFor[informer.WatcherOptions]()),
		functionsIn("Group", reflect.TypeFor[informer.Group]()),
		functionsIn("enqueue.Options", reflect.TypeFor[enqueue.Options]()),
		methodsOf("ResourceWatcher.", reflect.TypeFor[informer.ResourceWatcher[configMap]]()),
		methodsOf("ResourceEventHandler.", reflect.TypeFor[cache.ResourceEventHandler]()),
	)
	for _, name := range methodsOf("", reflect.TypeFor[informer.Durable]()) {
		want = append(want, "Options.Durable: "+strings.ToLower(name))
	}
	if len(want) < 30 {
		t.Errorf("found only %q", want)
	}
	for _, name := range want {
		if !slices.ContainsFunc(called, func(c string) bool { return strings.HasPrefix(c, name) }) {
			t.Errorf("%s is not a callback of the test's program: make the program give that function, and use it", name)
		}
	}
}

// functionsIn returns the names of the functions that a struct of type t has, also in other
// structs, slices and maps.
func functionsIn(name string, t reflect.Type) (names []string) {
	switch t.Kind() {
	case reflect.Func:
		return []string{name}
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return functionsIn(name, t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			if field.IsExported() {
				names = append(names, functionsIn(name+"."+field.Name, field.Type)...)
			}
		}
	}
	return names
}

func methodsOf(prefix string, t reflect.Type) (names []string) {
	for m := range t.Methods() {
		names = append(names, prefix+m.Name)
	}
	return names
}
