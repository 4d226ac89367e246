package source

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/framing"
	"github.com/customcacheinformer/informer/internal/object"
)

// tapBuffer is how many events of a watch may be decoded before the forwarder takes them.
const tapBuffer = 64

type client struct {
	*reading
	lister cache.ListerWatcherWithContext // the user's
}

// list makes one LIST request. It returns a list from which the reflector can extract the objects, and
// the version of the list. If checkVersion returns an error, so does list.
func (c *client) list(ctx context.Context, opts metav1.ListOptions, checkVersion func(version string, proven bool) error) (list runtime.Object, version string, err error) {
	if !c.enter("list") {
		return nil, "", context.Canceled
	}
	defer c.calls.leave("list")
	begun := time.Now()
	c.opts.Tweak(&opts)
	ctx = c.waiting.forAnswer(ctx, c.logger, "list", c.clock.Now(), c.turn.Load())
	list, objs, err := c.request(ctx, opts)
	c.waiting.answer.End()
	c.Progress()
	version, err = versionOf(list, err)
	if err == nil {
		if item := object.NewItem(list); item != nil { // nothing else shows the type of an empty list
			err = c.sink.CheckType(item)
		}
		list = withItems(list, objs)
	}
	proven := false
	if err == nil {
		proven, err = c.answers.checkKind(list)
	}
	if err == nil {
		err = checkVersion(version, proven)
	}
	if c.callbacks.Listed != nil {
		info := List{Took: time.Since(begun), Err: err}
		if err == nil {
			info.Objects = meta.LenList(list)
		}
		c.callbacks.Listed(info)
	}
	if err != nil {
		return nil, "", err
	}
	c.lastContact.Set(c.clock)
	return list, version, nil
}

func versionOf(list runtime.Object, err error) (string, error) {
	switch {
	case err != nil:
		return "", explain(err)
	case object.IsNil(list):
		return "", errors.New("the source returned no list")
	}
	m, err := object.ListMeta(list)
	if err != nil {
		return "", err
	}
	return m.GetResourceVersion(), nil
}

// request makes one LIST request. If this package has decoded the objects itself, request returns
// them, and a list without them. Otherwise objs is nil.
func (c *client) request(ctx context.Context, opts metav1.ListOptions) (list runtime.Object, objs []runtime.Object, err error) {
	taps := c.opts.Framing.OK()
	if taps && c.decoded.misfits.Load() < mostMisfits {
		tap := &framing.Tap{Type: c.opts.Framing, Item: func(obj runtime.Object) error {
			objs = append(objs, obj)
			c.Progress()
			return ctx.Err()
		}}
		list, err = c.lister.ListWithContext(framing.With(ctx, tap), opts)
		if err != nil || object.IsNil(list) {
			return list, nil, err
		}
		c.decoded.answered(tap)
		if !tap.Misfit() && (len(objs) == 0 || meta.LenList(list) == 0) {
			c.decoded.misfits.Store(0)
			c.decoded.objects.Add(int64(len(objs)))
			return list, objs, nil
		}
		// client-go takes the rest of the answer for a list, which it is not.
		c.decoded.misfits.Add(1)
	} else if taps {
		c.decoded.leave(misfits)
	}
	list, err = c.lister.ListWithContext(ctx, opts)
	return list, nil, err
}

// watch opens a watch. Events that this package decodes itself come from taken, and all others from w.
// taken is nil if all events come from w.
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

// withItems returns a list with the metadata of list and with objs as its items. A typed list could
// not hold objs without a copy of each, so withItems returns another type of list for it.
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
