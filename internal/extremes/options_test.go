package extremes_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var optionTrials = map[string]extremes.Trial{
	"informer.Options.Queue":            extremes.Field("max -1 min", nil, inBubble(runs)),
	"informer.Options.WatchList":        extremes.Field("max -1 min", nil, inBubble(runs)),
	"informer.Options.Intake":           extremes.Field("max -1 min", nil, inBubble(runs)),
	"informer.Options.PageSize":         extremes.Field("", listing, inBubble(runs)),
	"informer.Options.DrainTimeout":     extremes.Field("-1 min", nil, inBubble(drains)),
	"informer.Options.Backoff.Duration": extremes.Field("0 -1 min", backingOff, inBubble(recovers)),
	"informer.Options.Backoff.Cap":      extremes.Field("-1 min", backingOff, inBubble(recovers)),
	"informer.Options.Backoff.Steps":    extremes.Field("-1 min", backingOff, inBubble(recovers)),
	"informer.Options.Backoff.Factor":   extremes.Field("max -1 min inf -inf nan", backingOff, inBubble(recovers)),
	"informer.Options.Backoff.Jitter":   extremes.Field("max -1 min inf -inf nan", backingOff, inBubble(recovers)),

	"informer.Options.TweakListOptions(*v1.ListOptions).Limit": extremes.Number("", inBubble(func(t *testing.T, n int64) error {
		return runsOver(t, func(src *source) (*testkit.Informer, error) {
			tweak := func(opts *metav1.ListOptions) { opts.Limit = n }
			// A list with a limit asks for exactly the version that was reached. That version may be
			// gone. This is reported, and the informer lists again.
			return informer.NewFrom(src, options{TweakListOptions: tweak, WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore})
		})
	})),
	"informer.Options.TweakListOptions(*v1.ListOptions).TimeoutSeconds": extremes.Number("", inBubble(func(t *testing.T, n int64) error {
		return runsOver(t, func(src *source) (*testkit.Informer, error) {
			tweak := func(opts *metav1.ListOptions) { opts.TimeoutSeconds = &n }
			return informer.NewFrom(src, options{TweakListOptions: tweak, ErrorHandler: fails(t)})
		})
	})),
}

// listing returns options with which an informer lists in pages.
func listing() options { return options{WatchList: informer.WatchListOff} }

// backingOff returns options with a Backoff in which any other field may be set.
func backingOff() options {
	return options{Backoff: &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Minute}}
}

// runs checks that an informer starts, tells what happens, also after a relist, and stops.
func runs(t *testing.T, opts options) error {
	return runsOver(t, func(src *source) (*testkit.Informer, error) {
		opts.ErrorHandler = fails(t)
		return informer.NewFrom(src, opts)
	})
}

func runsOver(t *testing.T, construct func(*source) (*testkit.Informer, error)) error {
	src := informertest.NewSource(object("a", "1"), object("b", "1"), object("c", "1"))
	inf, err := construct(src)
	if err != nil {
		return err
	}
	var r recorder
	testkit.AddWatcher(t, inf, &r, informer.WatcherOptions{})
	stop := informertest.Run(t, inf)
	r.Expect(t, "added default/a", "added default/b", "added default/c")
	src.Apply(object("a", "2"))
	r.Expect(t, "updated default/a")
	src.SetFaults(informertest.Faults{Mute: true})
	src.Apply(object("b", "2"))
	if _, err := src.Delete(testkit.KeyOf("c")); err != nil {
		t.Error(err)
	}
	src.Expire()
	src.SetFaults(informertest.Faults{})
	r.Expect(t, "updated default/b", "deleted default/c")
	testkit.CheckView(t, &r, src)
	testkit.CheckStore(t, inf, src)
	stop()
	return nil
}

// drains checks that a drain makes the retries of an event, and handles waiting events.
func drains(t *testing.T, opts options) error {
	src := informertest.NewSource[configMap]()
	opts.ErrorHandler = testkit.Ignore
	inf, err := informer.NewFrom(src, opts)
	if err != nil {
		return err
	}
	calls := map[string]int{}
	reg := testkit.AddWatcher(t, inf, informer.WatcherFunc[configMap](func(ctx context.Context, e event) error {
		name := e.Key().Name
		if calls[name]++; name == "slow" {
			select {
			case <-time.After(hour):
			case <-ctx.Done():
				return ctx.Err()
			}
		} else if calls[name] < 3 {
			return errors.New("not yet")
		}
		return nil
	}), informer.WatcherOptions{Retry: func(int, error) (time.Duration, bool) { return 24 * hour, true }})
	stop := informertest.Run(t, inf)
	src.Apply(object("bad", "1"))
	synctest.Wait()
	src.Apply(object("slow", "1"))
	synctest.Wait()
	src.Apply(object("waits", "1"))
	synctest.Wait()
	begun := time.Now()
	stop()
	took, pending := time.Since(begun), reg.Stats().Pending
	if opts.DrainTimeout == 0 {
		if took > 0 || pending != 3 {
			t.Errorf("the stop took %v, and %d events are left, want no time and 3", took, pending)
		}
		return nil
	}
	// After the slow call, "bad" has its second call and "waits" its first. A day later "bad" has
	// its third and "waits" its second, and another day later "waits" its third.
	if want := 49 * hour; took != want || pending > 0 || calls["bad"] != 3 || calls["waits"] != 3 {
		t.Errorf("the stop took %v, %d events are left, and the calls were %v", took, pending, calls)
	}
	return nil
}

// recovers checks that an informer bears an outage at its start and a later one: it makes some
// requests, but not too many, and goes on when the source is back, though perhaps after years.
func recovers(t *testing.T, opts options) error {
	src := &patient{source: informertest.NewSource(object("a", "1")), t: t}
	opts.ErrorHandler = testkit.Ignore
	inf, err := informer.NewFrom(src, opts)
	if err != nil {
		return err
	}
	var r recorder
	testkit.AddWatcher(t, inf, &r, informer.WatcherOptions{})
	testkit.Unreachable(src.source)
	stop := testkit.Start(t, inf)
	time.Sleep(hour)
	src.Heal()
	if err := inf.WaitForSync(testkit.Within(t, years)); err != nil {
		t.Errorf("after an outage at the start: %v", err)
		return nil
	}
	r.Expect(t, "added default/a")
	testkit.Unreachable(src.source)
	time.Sleep(hour)
	src.Heal()
	src.Apply(object("a", "2"))
	err = inf.WaitFor(testkit.Within(t, years), testkit.KeyOf("a"), func(obj configMap, _ bool) bool { return obj.Data["value"] == "2" })
	if err != nil {
		t.Errorf("after another outage: %v", err)
	}
	stop()
	return nil
}

// years is longer than the longest pause between requests.
const years = 3 * 365 * 24 * time.Hour

// patient is a source that fails the test if it gets more than 10,000 requests. It then answers
// no more, so that time goes on.
type patient struct {
	*source
	t        *testing.T
	requests atomic.Int32
}

func (p *patient) count(ctx context.Context) {
	if n := p.requests.Add(1); n == 10_000 {
		p.t.Error("the source got 10,000 requests in an hour")
	} else if n > 10_000 {
		<-ctx.Done()
	}
}

func (p *patient) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	p.count(ctx)
	return p.source.ListWithContext(ctx, opts)
}

func (p *patient) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	p.count(ctx)
	return p.source.WatchWithContext(ctx, opts)
}
