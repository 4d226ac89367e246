package restart_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

func TestAProbeAnsweredWithoutAListIsReportedAndFollowedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := lived(t, options{}, "a")
		n := len(src.Requests())
		var errs errorLog
		inf, r, _ := begun(t, &oddProbe{src, object("no list", "1")}, options{Durable: store, ErrorHandler: errs.Handle})
		sleepBubble(time.Minute)
		got := errs.Take()
		equal(t, "reports", len(got), 1)
		errorSays(t, errors.Join(got...), "*v1.ConfigMap is not a list")
		if got := asked(src, n); !inf.HasSynced() || !strings.HasPrefix(got, "list, watch from") {
			t.Errorf("synced: %v, the source was asked for: %s", inf.HasSynced(), got)
		}
		checkView(t, r, src)
	})
}

func TestABookmarkThatCannotBeComparedIsNotResumedFrom(t *testing.T) {
	bothWays(t, func(t *testing.T, opts options, _ string) {
		src, store := lived(t, options{}, "a")
		n := len(src.Requests())
		src.Apply(object("b", "1"))
		opts.Durable = store
		_, r := watched(t, &oddProbe{src, &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "v1"}}}, opts)
		synctest.Wait()
		equal(t, "asked", asked(src, n), "list, watch from "+src.ResourceVersion())
		checkView(t, r, src)
	})
}
