package source

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/framing"
	"github.com/customcacheinformer/informer/internal/object"
)

// tapBuffer is how many events of a watch may be decoded before the forwarder takes them.
const tapBuffer = 64

// request makes one LIST request. If the objects were taken off the body, it returns them, and a
// list without them.
func (c *client) request(ctx context.Context, opts metav1.ListOptions) (list runtime.Object, objs []runtime.Object, err error) {
	if c.opts.Framing.OK() {
		tap := &framing.Tap{Type: c.opts.Framing, Item: func(obj runtime.Object) error {
			objs = append(objs, obj)
			return ctx.Err()
		}}
		list, err = c.lister.ListWithContext(framing.With(ctx, tap), opts)
		if err != nil || object.IsNil(list) {
			return list, nil, err
		}
		c.decoded.answered(tap)
		if !tap.Misfit() && (len(objs) == 0 || meta.LenList(list) == 0) {
			c.decoded.objects.Add(int64(len(objs)))
			return list, objs, nil
		}
		// client-go takes the rest of the answer for a list, which it is not.
	}
	list, err = c.lister.ListWithContext(ctx, opts)
	return list, nil, err
}

// watch requests a watch. The events that are taken off its body come from taken, which is nil if none
// are.
func (c *client) watch(ctx context.Context, opts metav1.ListOptions) (w watch.Interface, taken chan watch.Event, err error) {
	if !c.opts.Framing.OK() {
		w, err = c.lister.WatchWithContext(ctx, opts)
		return w, nil, err
	}
	taken = make(chan watch.Event, tapBuffer)
	tap := &framing.Tap{Type: c.opts.Framing, Events: taken}
	w, err = c.lister.WatchWithContext(framing.With(ctx, tap), opts)
	if err == nil && !object.IsNil(w) {
		c.decoded.answered(tap)
		if !tap.Used() {
			taken = nil
		}
	}
	return w, taken, err
}

// withItems returns the list with objs as its items. A typed list cannot hold them without a copy
// of each, so another takes its place.
func withItems(list runtime.Object, objs []runtime.Object) runtime.Object {
	m, err := object.ListMeta(list)
	if len(objs) == 0 || err != nil {
		return list
	}
	if u, ok := list.(*unstructured.UnstructuredList); ok {
		items := make([]unstructured.Unstructured, 0, len(objs))
		for _, obj := range objs {
			if item, ok := obj.(*unstructured.Unstructured); ok {
				items = append(items, *item)
			}
		}
		if len(items) == len(objs) {
			u.Items = items
			return u
		}
	}
	return &metainternalversion.List{
		ListMeta: metav1.ListMeta{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue(), RemainingItemCount: m.GetRemainingItemCount()},
		Items:    objs,
	}
}

// merged is what a watch brings: the events that were taken off its body, and those of client-go,
// in the order of the body. It belongs to one goroutine.
type merged struct {
	taken <-chan watch.Event // nil if the body is client-go's
	rest  <-chan watch.Event // of client-go

	count  *atomic.Int64 // of the taken events
	next   *watch.Event  // was taken, and comes next
	marked bool          // what client-go has comes next
	held   bool          // client-go has e, or its watch has ended
	e      watch.Event
	open   bool
}

// poll returns the next event if it is there. open is false at the end of the watch.
func (m *merged) poll() (e watch.Event, open, ok bool) {
	for {
		if m.next != nil {
			e, m.next = *m.next, nil
			return e, true, true
		}
		if m.taken == nil {
			m.marked = true
		}
		if !m.marked {
			select {
			case e := <-m.taken:
				m.take(e)
				continue
			default:
			}
		}
		// client-go has an event only after its Mark, so without one, its watch has ended.
		if m.held {
			m.held, m.marked = false, false
			return m.e, m.open, true
		}
		select {
		case e, open := <-m.rest:
			m.hold(e, open)
		default:
			return e, false, false
		}
	}
}

// ahead returns the channel of the taken events, or nil while an event of client-go's must come
// first.
func (m *merged) ahead() <-chan watch.Event {
	if m.marked {
		return nil
	}
	return m.taken
}

// take takes an event from ahead.
func (m *merged) take(e watch.Event) {
	if e.Type == framing.Mark {
		m.marked = true
	} else {
		m.count.Add(1)
		m.next = &e
	}
}

// hold takes an event from rest, or its end.
func (m *merged) hold(e watch.Event, open bool) { m.e, m.open, m.held = e, open, true }
