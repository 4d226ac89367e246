package restart_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

type oddProbe struct {
	*source
	answer runtime.Object
}

func (o *oddProbe) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.Limit == 1 {
		return o.answer, nil
	}
	return o.source.ListWithContext(ctx, opts)
}

// restarted returns an informer over a store that an earlier informer has filled from src.
func restarted(t *testing.T, src *source, lw cache.ListerWatcher, opts options) (*ci, *recorder) {
	t.Helper()
	store := informertest.NewDurable()
	oneRun(t, src, store, options{})
	opts.Durable = store.Reopen()
	inf, r := newInformer(t, lw, opts), &recorder{}
	addWatcher(t, inf, r, informer.WatcherOptions{})
	return inf, r
}

func TestAProbeThatIsAnsweredWithNoListIsReportedAndFollowedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		lw := &oddProbe{source: src, answer: object("no list", "1")}
		var errs errorLog
		inf, r := restarted(t, src, lw, options{ErrorHandler: errs.Handle})
		n := len(src.Requests())
		start(t, inf)
		sleepBubble(time.Minute)
		if got := errs.Take(); len(got) != 1 || !strings.Contains(got[0].Error(), "*v1.ConfigMap is no list") {
			t.Errorf("reported: %v", got)
		}
		if got := asked(src, n); !inf.HasSynced() || !strings.HasPrefix(got, "list, watch from") {
			t.Errorf("synced: %v, the source was asked for: %s", inf.HasSynced(), got)
		}
		checkView(t, r, src)
	})
}

func TestABookmarkThatCannotBeComparedIsNotResumedFrom(t *testing.T) {
	bothWays(t, func(t *testing.T, opts options, _ string) {
		src := informertest.NewSource(object("a", "1"))
		lw := &oddProbe{source: src, answer: &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "v1"}}}
		inf, r := restarted(t, src, lw, opts)
		n := len(src.Requests())
		src.Apply(object("b", "1"))
		informertest.Run(t, inf)
		synctest.Wait()
		if got, want := asked(src, n), "list, watch from "+src.ResourceVersion(); got != want {
			t.Errorf("the source was asked for: %s\nwant: %s", got, want)
		}
		checkView(t, r, src)
	})
}
