package source

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/object"
)

type client struct {
	*reading
	lister cache.ListerWatcherWithContext // the user's
}

// list makes one LIST request. It returns a list that the reflector can take apart, and the
// version of the list. It fails if checkVersion returns an error.
func (c *client) list(ctx context.Context, opts metav1.ListOptions, checkVersion func(version string, proven bool) error) (list runtime.Object, version string, err error) {
	if !c.calls.enter("list") {
		return nil, "", context.Canceled
	}
	defer c.calls.leave("list")
	begun := time.Now()
	c.opts.Tweak(&opts)
	ctx = c.waiting.forAnswer(ctx, c.logger, "list", c.clock.Now())
	list, objs, err := c.request(ctx, opts)
	c.waiting.answer.End()
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
