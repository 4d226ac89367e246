package callbacks_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

// method is a method of the library, with arguments.
type method struct {
	name string
	call reflect.Value
	args []reflect.Value
}

// methods returns the methods that a callback can call, those that end something last.
func (w *world) methods(c callback) []method {
	var all []method
	first := w.members[0]
	for _, receiver := range []struct {
		name  string
		value reflect.Value
	}{
		{"CustomCacheInformer", reflect.ValueOf(first.inf)},
		{"Group", reflect.ValueOf(&w.group)},
		{"ClientGo", reflect.ValueOf(informer.ClientGo{Group: &w.group})},
		{"SharedIndexInformer", reflect.ValueOf(first.shared)},
		{"ResourceEventHandlerRegistration", reflect.ValueOf(first.handle)},
		{"Indexer", reflect.ValueOf(first.shared.GetIndexer())},
		{"enqueue.Controller", reflect.ValueOf(w.controllers[0])},
		{"enqueue.Source", reflect.ValueOf(enqueue.For(first.inf))},
		{"Registration", reflect.ValueOf(c.reg)},
	} {
		for m, f := range receiver.value.Methods() {
			all = append(all, w.overloads(c, receiver.name+"."+m.Name, f)...)
		}
	}
	slices.SortStableFunc(all, func(a, b method) int { return ends(a) - ends(b) })
	return all
}

func ends(m method) int {
	if strings.Contains(m.name, "Remove") {
		return 1
	}
	return 0
}

// parts returns the type and the name of a method, from a name such as enqueue.Source.With.
func parts(method string) (of, name string) {
	plain, _, _ := strings.Cut(method, "(")
	dot := strings.LastIndex(plain, ".")
	return method[:dot], method[dot+1:]
}

// overloads returns a method once for each list of arguments.
func (w *world) overloads(c callback, name string, f reflect.Value) []method {
	all := []method{{name: name, call: f}}
	for i := range f.Type().NumIn() {
		var more []method
		for label, arg := range w.arguments(c, name, f.Type().In(i)) {
			for _, m := range all {
				if label != "" {
					m.name += "(" + label + ")"
				}
				m.args = append(slices.Clone(m.args), arg)
				more = append(more, m)
			}
		}
		if more == nil {
			w.t.Errorf("%s: there is no argument of type %v", name, f.Type().In(i))
		}
		all = more
	}
	return all
}

// arguments returns values of a type, by a label that is empty if there is only one.
func (w *world) arguments(c callback, method string, of reflect.Type) map[string]reflect.Value {
	first := w.members[0]
	one := func(v any) map[string]reflect.Value { return map[string]reflect.Value{"": reflect.ValueOf(v)} }
	switch of {
	case reflect.TypeFor[context.Context](), reflect.TypeFor[<-chan struct{}]():
		return map[string]reflect.Value{"": reflect.Zero(of)} // do makes it
	case reflect.TypeFor[string]():
		switch _, name := parts(method); name {
		case "WaitForVersion":
			return one(first.src.ResourceVersion())
		case "ByIndex", "Index", "IndexKeys", "ListIndexFuncValues":
			return one("value")
		}
		return one("default")
	case reflect.TypeFor[[]string]():
		return one([]string{"default"})
	case reflect.TypeFor[types.NamespacedName]():
		return one(keyOf("a"))
	case reflect.TypeFor[labels.Selector]():
		return one(labels.Everything())
	case reflect.TypeFor[any]():
		return one(object("a", "1"))
	case reflect.TypeFor[[]any]():
		return one([]any{object("a", "1")})
	case reflect.TypeFor[**informer.Snapshot[configMap]]():
		return one(new(*informer.Snapshot[configMap]))
	case reflect.TypeFor[informer.ResourceWatcher[configMap]]():
		return one(&recorder{})
	case reflect.TypeFor[informer.Member]():
		fresh, err := informer.NewFrom(informertest.NewSource[configMap](), options{})
		if err != nil {
			w.t.Fatal(err)
		}
		members := map[string]reflect.Value{"new": reflect.ValueOf(fresh)}
		own := c.own
		if c.of != nil {
			own = c.of.inf
		}
		for _, m := range []informer.Member{w.members[0].inf, w.members[1].inf, w.controllers[0], w.controllers[1]} {
			if m == own {
				members["own"] = reflect.ValueOf(m)
			} else {
				members[m.Name()] = reflect.ValueOf(m)
			}
		}
		return members
	case reflect.TypeFor[*informer.Observer]():
		return one(&informer.Observer{})
	case reflect.TypeFor[cache.ListerWatcher]():
		return one(first.src)
	case reflect.TypeFor[runtime.Object]():
		return one(object("a", "1"))
	case reflect.TypeFor[cache.ResourceEventHandler]():
		return one(cache.ResourceEventHandlerFuncs{})
	case reflect.TypeFor[cache.ResourceEventHandlerRegistration]():
		return one(first.handle)
	case reflect.TypeFor[cache.Indexers]():
		return one(cache.Indexers{"new in " + c.name + " by " + method: cache.MetaNamespaceIndexFunc})
	}
	switch {
	case of.Kind() == reflect.Func: // it returns true, and nil or zero otherwise
		return one(reflect.MakeFunc(of, func([]reflect.Value) []reflect.Value {
			var results []reflect.Value
			for i := range of.NumOut() {
				result := reflect.New(of.Out(i)).Elem()
				if result.Kind() == reflect.Bool {
					result.SetBool(true)
				}
				results = append(results, result)
			}
			return results
		}).Interface())
	case of.Kind() == reflect.Struct, reflect.Zero(of).CanInt():
		return map[string]reflect.Value{"": reflect.Zero(of)}
	}
	return nil
}

// do calls m. If m waits for something, it must give up after a minute, also if it waits for the
// callback. do returns the error that m returns last.
func (m method) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := range m.args {
		switch m.args[i].Type() {
		case reflect.TypeFor[context.Context]():
			m.args[i] = reflect.ValueOf(ctx)
		case reflect.TypeFor[<-chan struct{}]():
			m.args[i] = reflect.ValueOf(ctx.Done())
		}
	}
	results := m.call.Call(m.args)
	if len(results) == 0 {
		return nil
	}
	last := results[len(results)-1]
	if last.Kind() == reflect.Func && last.Type().CanSeq2() {
		for range last.Seq2() {
			continue
		}
	}
	err, _ := last.Interface().(error)
	return err
}

// documented reports whether a method may return err in a callback.
func (w *world) documented(m method, err error) bool {
	_, name := parts(m.name)
	var late *informer.SyncError
	stopped := w.members[0].inf.Health().Stopped
	if strings.HasPrefix(m.name, "Group.") { // its informers stop one after the other
		stopped = stopped || w.running.Err() != nil
	}
	switch {
	case err == nil:
		return true
	case name == "ServerVersion":
		return true // the informer may not read its source yet, or any more, and the source fails once
	case name == "SetNamespaces":
		return strings.Contains(err.Error(), "reads one source") // internal/namespaces calls it of one with several
	case name == "WaitForVersionIn", name == "ServerVersionIn":
		return errors.Is(err, informer.ErrNotEngaged) // internal/clusters calls them of one over clusters
	case name == "Run", strings.HasPrefix(name, "Set"):
		return errors.Is(err, informer.ErrAlreadyRun)
	case strings.HasPrefix(name, "WaitFor"):
		return errors.As(err, &late)
	case name == "CatchUp":
		return true // it waits for the callback, until its ctx ends
	case name == "Ready":
		return true
	case name == "Snapshot":
		return strings.Contains(err.Error(), "only the informer's own store has snapshots")
	case name == "Add(own)", name == "Add(first)", name == "Add(second)", name == "Add(controller)", name == "Add(other controller)":
		return strings.Contains(err.Error(), "is already a member") || stopped && errors.Is(err, informer.ErrStopped)
	case name == "Remove(new)":
		return strings.Contains(err.Error(), "is not a member")
	case strings.HasPrefix(name, "Add"):
		return stopped && errors.Is(err, informer.ErrStopped)
	}
	return false
}
