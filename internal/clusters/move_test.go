package clusters_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var errWebhook = errors.New("the webhook fails")

// form delivers the objects of a source in another form, with the same resourceVersions: with an annotation, unless an object is plain.
type form struct {
	*source
	name  string
	fails atomic.Bool
}

func (f *form) as(obj runtime.Object) runtime.Object {
	if cm, ok := obj.(*corev1.ConfigMap); ok && cm.Data["value"] != "plain" {
		cm = cm.DeepCopy()
		cm.Annotations = map[string]string{"form": f.name}
		return cm
	}
	return obj
}

func (f *form) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if f.fails.Load() {
		return nil, errWebhook
	}
	list, err := f.source.ListWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	objs, err := meta.ExtractList(list)
	for i := range objs {
		objs[i] = f.as(objs[i])
	}
	return list, errors.Join(err, meta.SetList(list, objs))
}

func (f *form) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if f.fails.Load() {
		return nil, errWebhook
	}
	w, err := f.source.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if e.Type != watch.Bookmark {
			e.Object = f.as(e.Object)
		}
		return e, true
	}), nil
}

func TestAMoveComparesTheContents(t *testing.T) {
	each(t, func(t *testing.T, opts options) {
		opts.ErrorHandler = testkit.Ignore
		w := newWorld(t, opts)
		v := w.watch(informer.WatcherOptions{})
		east := w.cluster("east", testkit.Object("a", "1"), testkit.Object("b", "1"), testkit.Object("same", "plain"), testkit.Object("gone", "1"))
		w.engage("west", testkit.Object("x", "1"))
		v1, v2 := &form{source: east, name: "v1"}, &form{source: east, name: "v2"}
		errorIs(t, w.Move("east", informer.ClusterSource{Source: v1, UID: "1"}), informer.ErrNotEngaged)
		must(t, w.Engage("east", informer.ClusterSource{Source: v1, UID: "1"}))
		w.start(0)
		w.checkAfter(time.Second, []string{"east", "west"}, v)
		v.take()

		// The source of the new form fails at first. Until it works, nothing changes.
		v2.fails.Store(true)
		must(t, w.Move("east", informer.ClusterSource{Source: v2, UID: "1"}))
		time.Sleep(time.Second)
		equal(t, "events of a source that fails", len(v.take()), 0)
		_, _ = east.Delete(key("gone"))
		v2.fails.Store(false)
		w.checkAfter(2*time.Minute, []string{"east", "west"}, v)
		equal(t, "events of the move", v.take(), []string{"relist deleted east|gone", "relist updated east|a", "relist updated east|b"})
		objs, err := w.In("east").List("", nil)
		must(t, err)
		for _, obj := range objs {
			if got := obj.Annotations["form"]; obj.Name != "same" && got != "v2" {
				t.Errorf("%s has the form %q", obj.Name, got)
			}
		}
		// The watch continues in the new form, and a later list takes equal versions for equal contents again.
		east.Apply(testkit.Object("a", "2"))
		w.checkAfter(time.Second, []string{"east", "west"}, v)
		equal(t, "events after the move", v.take(), []string{"watch updated east|a"})
	})
}

func TestAMoveThatCannotBeMadeIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{})
		w.engage("east", testkit.Object("a", "1"))
		src := informer.ClusterSource{Source: w.sources["east"]}
		errorSays(t, w.Move("east", informer.ClusterSource{}), "the source (lw) is nil")
		errorSays(t, w.Move("", src), "the name is empty")
		errorSays(t, w.Move("west", src), "not engaged")
		noError(t, w.Move("east", src)) // before Run
		w.start(0)
		w.checkAfter(time.Second, []string{"east"})
		w.stop()
		errorIs(t, w.Move("east", src), informer.ErrStopped)
	})
}

// TestTheOptionsOfARequestAreThoseOfTheCluster has a selector for one of two clusters, which goes with its source.
func TestTheOptionsOfARequestAreThoseOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, mu := map[string]map[string]bool{"east": {}, "west": {}}, &sync.Mutex{}
		w := newWorld(t, options{TweakListOptions: func(opts *metav1.ListOptions) { opts.FieldSelector = "all" }})
		from := func(name, selector string) informer.ClusterSource {
			src := informer.ClusterSource{Source: &asking{w.cluster(name), mu, asked[name]}, UID: "1"}
			if selector != "" {
				src.TweakListOptions = func(opts *metav1.ListOptions) { opts.LabelSelector = selector }
			}
			return src
		}
		must(t, errors.Join(w.Engage("east", from("east", "a")), w.Engage("west", from("west", ""))))
		w.start(time.Second)
		must(t, w.Replace("east", from("east", "b")))
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		equal(t, "east", asked["east"], map[string]bool{"all a": true, "all b": true})
		equal(t, "west", asked["west"], map[string]bool{"all ": true})
	})
}

// asking notes the selectors of requests. It finds objects without them.
type asking struct {
	*source
	mu        *sync.Mutex // protects selectors
	selectors map[string]bool
}

func (a *asking) note(opts *metav1.ListOptions) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.selectors[opts.FieldSelector+" "+opts.LabelSelector] = true
	opts.FieldSelector, opts.LabelSelector = "", ""
}

func (a *asking) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	a.note(&opts)
	return a.source.ListWithContext(ctx, opts)
}

func (a *asking) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	a.note(&opts)
	return a.source.WatchWithContext(ctx, opts)
}
