package source_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// cut is a source whose streams end after this many events.
type cut struct {
	*fakeSource
	last int
}

func (s cut) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	inner, err := s.fakeSource.WatchWithContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	streaming, n := opts.SendInitialEvents != nil, 0
	return watch.Filter(inner, func(e watch.Event) (watch.Event, bool) {
		if n++; streaming && n == s.last {
			inner.Stop()
		}
		return e, true
	}), nil
}

func sleepUntil(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func TestAStreamThatIsCutAgainAndAgainIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"), object("b", "1"))
		src.Fail("list", forbidden("configmaps"), -1)
		var errs errorLog
		inf := newInformer(t, cut{fakeSource: src, last: 1}, options{ErrorHandler: errs.Handle})
		start(t, inf)
		sleepBubble(10 * time.Minute)
		if got := errs.Take(); len(got) != 2 || inf.HasSynced() {
			t.Errorf("reported in ten minutes: %v, synced: %v, the source was asked for: %s", got, inf.HasSynced(), asked(src, 0))
		}
	})
}

func TestAShortWatchNowAndThenIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := informertest.NewSource(object("a", "1"))
		var errs errorLog
		inf := newInformer(t, src, options{ErrorHandler: errs.Handle})
		informertest.Run(t, inf)
		for range 5 {
			sleepBubble(hour)
			src.Disconnect() // ends the next watch at once
			synctest.Wait()
			sleepBubble(500 * time.Millisecond)
			src.Disconnect()
		}
		sleepBubble(hour)
		if got := errs.Take(); len(got) != 0 || inf.Health().SourceError != nil {
			t.Errorf("reported: %v, Health says %v", got, inf.Health().SourceError)
		}
	})
}

func TestAWatchThatIsOpenedIsContact(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("a", "1"))
		inf := runWith(t, queue, src, informertest.NewStore(nil))
		sleepBubble(hour)
		src.Disconnect()
		sleepBubble(10 * time.Second)
		if got := ago(inf.Health().LastContact); got > 10*time.Second {
			t.Errorf("last contact %v ago", got)
		}
	})
}
