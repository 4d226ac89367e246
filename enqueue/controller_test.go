package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

type key = types.NamespacedName

func nothing(context.Context, key) (time.Duration, error) { return 0, nil }

// newPods returns an informer of that name, which is not run.
func newPods(t *testing.T, name string, source *informertest.Source[*corev1.Pod]) *informer.CustomCacheInformer[*corev1.Pod] {
	t.Helper()
	pods, err := informer.NewFrom(source, informer.Options[*corev1.Pod]{Name: name, ErrorHandler: func(context.Context, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func newController(t *testing.T, reconcile func(context.Context, key) (time.Duration, error), opts enqueue.Options, sources ...enqueue.Source[key]) *enqueue.Controller[key] {
	t.Helper()
	c, err := enqueue.NewController(reconcile, opts, sources...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// runGroup runs a group of members until stop is called.
func runGroup(t *testing.T, group *informer.Group, members ...informer.Member) (stop func() error) {
	t.Helper()
	for _, m := range members {
		if err := group.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

func TestNewControllerChecksItsArguments(t *testing.T) {
	pods := newPods(t, "", informertest.NewSource[*corev1.Pod]())
	source := enqueue.For(pods)
	check := func(want string, reconcile func(context.Context, key) (time.Duration, error), opts enqueue.Options, from ...enqueue.Source[key]) {
		t.Helper()
		c, err := enqueue.NewController(reconcile, opts, from...)
		if c != nil || err == nil || !strings.HasPrefix(err.Error(), "enqueue: NewController: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("NewController returned %v, %v, want an error with %q", c, err, want)
		}
	}
	check("reconcile is nil", nil, enqueue.Options{Name: "website"}, source)
	check("Options.Name is empty", nothing, enqueue.Options{}, source)
	for want, from := range map[string][]enqueue.Source[key]{
		"there is no source":                      nil,
		"source 2 is the zero Source":             {source, {}},
		"source 1: For: the informer is nil":      {enqueue.For[*corev1.Pod](nil)},
		"source 1: For: one of changes is nil":    {enqueue.For(pods, nil)},
		"source 1: Owns: Owners.Kind has no kind": {enqueue.Owns(pods, enqueue.Owners{})},
		"source 1: Watches: keys is nil":          {enqueue.Watches[*corev1.Pod, key](pods, nil)},
		"WatcherOptions.Workers":                  {source, source.With(informer.WatcherOptions{Workers: -1})},
	} {
		check(want, nothing, enqueue.Options{Name: "website"}, from...)
	}
	for want, opts := range map[string]enqueue.Options{
		"Options.Workers is -1, less than 0":                            {Workers: -1},
		"Options.MaxAttempts is -1, less than 0":                        {MaxAttempts: -1},
		"Options.DrainTimeout is -1s, less than 0":                      {DrainTimeout: -time.Second},
		"Options.BaseDelay is -1ns, less than 0":                        {BaseDelay: -1},
		"Options.MaxDelay is -1ns, less than 0":                         {MaxDelay: -1},
		"Options.BaseDelay is 1m0s, more than Options.MaxDelay, 1s":     {BaseDelay: time.Minute, MaxDelay: time.Second},
		"Options.StandbyDeletes is set, but neither Elected nor Shards": {StandbyDeletes: 1},
		"Options.Reads[0] is nil":                                       {Reads: []informer.Member{nil}},
	} {
		opts.Name = "website"
		check(want, nothing, opts, source)
	}
	if watchers := pods.Health().Watchers; len(watchers) != 0 {
		t.Errorf("the controllers that were not made have left the watchers %v", watchers)
	}
}

// Nothing else may keep a controller from its start, and nothing it reads may be missing.
func TestAControllerStartsWhenWhatItReadsHasSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := informertest.NewSource[*corev1.Pod]()
		missing.Fail("list", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil), -1)
		missing.Fail("watch", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil), -1)
		late := informertest.NewSource(pod("late"))
		late.Fail("list", errors.New("not yet"), -1)
		late.Fail("watch", errors.New("not yet"), -1)
		a, b, c := newPods(t, "a", informertest.NewSource(pod("p"))), newPods(t, "b", missing), newPods(t, "c", late)
		// A watcher of another part of the program blocks until the end.
		blocked := make(chan struct{})
		_, err := a.AddWatcher(informer.WatcherFunc[*corev1.Pod](func(context.Context, informer.Event[*corev1.Pod]) error { <-blocked; return nil }), informer.WatcherOptions{})
		if err != nil {
			t.Fatal(err)
		}
		quick := newController(t, nothing, enqueue.Options{Name: "quick"}, enqueue.For(a))
		waits := newController(t, nothing, enqueue.Options{Name: "waits"}, enqueue.For(a), enqueue.For(b))
		reads := newController(t, nothing, enqueue.Options{Name: "reads", Reads: []informer.Member{c}}, enqueue.For(a))
		var group informer.Group
		stop := runGroup(t, &group, quick, waits, reads, a, b, c)
		time.Sleep(time.Second)
		synctest.Wait()
		for name, want := range map[string]bool{"quick": true, "waits": false, "reads": false} {
			h := group.Health()[name].(enqueue.Health)
			if done := h.Succeeded > 0; !h.Started || h.Synced != want || done != want || (h.Ready() == nil) != want {
				t.Errorf("%s: started %v, synced %v, calls %d, %v, want %v", name, h.Started, h.Synced, h.Succeeded, h.Ready(), want)
			}
		}
		late.Heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		if h := reads.Health(); !h.Synced || h.Succeeded == 0 {
			t.Error("the controller does not run although what it reads has synced")
		}
		var e *informer.SyncError
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := waits.WaitForSync(ctx); !errors.As(err, &e) || fmt.Sprint(e.Late) != "[informer b]" || !apierrors.IsForbidden(err) {
			t.Errorf("WaitForSync returned %v, want a *SyncError that names informer b and what is forbidden", err)
		}
		close(blocked)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAControllerStopsBeforeItsInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a"))
		pods := newPods(t, "pods", source)
		returns := make(chan struct{})
		c := newController(t, func(ctx context.Context, _ key) (time.Duration, error) {
			<-ctx.Done()
			<-returns
			return 0, ctx.Err()
		}, enqueue.Options{Name: "website"}, enqueue.For(pods))
		var group informer.Group
		stop := runGroup(t, &group, pods, c) // the informer was added first
		time.Sleep(time.Second)
		done := make(chan error)
		go func() { done <- stop() }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !c.Health().Stopped || pods.Health().Stopped {
			t.Errorf("while a call is under way, controller stopped: %v, informer stopped: %v, want true and false", c.Health().Stopped, pods.Health().Stopped)
		}
		if _, err := source.Create(pod("b")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, there, _ := pods.Get(key{Namespace: "ns", Name: "b"}); !there {
			t.Error("the call can no longer see what happens")
		}
		close(returns)
		if err := <-done; err != nil || !pods.Health().Stopped {
			t.Errorf("the group ended with %v, informer stopped: %v", err, pods.Health().Stopped)
		}
	})
}

// A key that was given up is tried again at its next event, with all of its attempts.
func TestAKeyThatWasGivenUpBeginsAgainAtItsNextEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a"))
		pods := newPods(t, "pods", source)
		calls := 0
		c := newController(t, func(context.Context, key) (time.Duration, error) {
			if calls++; calls > 5 {
				return 0, nil
			}
			return 0, errors.New("no luck")
		}, enqueue.Options{Name: "website", MaxAttempts: 3, ErrorHandler: func(context.Context, error) {}}, enqueue.For(pods))
		var group informer.Group
		stop := runGroup(t, &group, pods, c)
		for i, want := range []int{3, 6} {
			time.Sleep(time.Hour)
			synctest.Wait()
			if h := c.Health(); calls != want || h.Failing != 1-i {
				t.Errorf("%d calls, %d failing keys, want %d and %d", calls, h.Failing, want, 1-i)
			}
			changed := pod("a")
			changed.Labels = map[string]string{"i": fmt.Sprint(i)}
			if _, err := source.Update(changed); err != nil {
				t.Fatal(err)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestALongWaitIsLogged(t *testing.T) {
	for name, elected := range map[string]bool{"the informers": false, "the election": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := informertest.NewSource[*corev1.Pod]()
				opts, want, release := enqueue.Options{Name: "website"}, `late=["informer pods"]`, source.Heal
				if elected {
					c := make(chan struct{})
					opts.Elected, want, release = c, `late=["the election"]`, func() { close(c) }
				} else {
					source.Fail("list", errors.New("not yet"), -1)
					source.Fail("watch", errors.New("not yet"), -1)
				}
				pods := newPods(t, "pods", source)
				c := newController(t, nothing, opts, enqueue.For(pods))
				ctx, logs := logged(t.Context(), t)
				ctx, cancel := context.WithCancel(ctx)
				done := make(chan error, 2)
				go func() { done <- pods.Run(ctx) }()
				go func() { done <- c.Run(ctx) }()
				time.Sleep(29 * time.Second)
				if strings.Contains(logs(), "waiting") {
					t.Errorf("logged after 29 s:\n%s", logs())
				}
				time.Sleep(time.Hour)
				if n := strings.Count(logs(), "Still waiting"); n != 1 || !strings.Contains(logs(), want) || !strings.Contains(logs(), `queue="website"`) {
					t.Errorf("after an hour of waiting the log has %d lines, want one with %s:\n%s", n, want, logs())
				}
				release()
				time.Sleep(time.Minute)
				if !strings.Contains(logs(), "The wait is over") {
					t.Errorf("the end of the wait is not logged:\n%s", logs())
				}
				cancel()
				for range 2 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func TestTheErrorHandlerOfAGroupReachesAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := newPods(t, "pods", informertest.NewSource(pod("a")))
		c := newController(t, func(context.Context, key) (time.Duration, error) { return 0, informer.ErrPermanent }, enqueue.Options{Name: "website"}, enqueue.For(pods))
		var reported []error
		group := informer.Group{ErrorHandler: func(_ context.Context, err error) { reported = append(reported, err) }}
		stop := runGroup(t, &group, pods, c)
		time.Sleep(time.Second)
		synctest.Wait()
		var failed *enqueue.Error
		if len(reported) != 1 || !errors.As(reported[0], &failed) || failed.Name != "website" {
			t.Errorf("reported %v, want one error", reported)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutAnErrorHandlerALossOnStandbyIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a"), pod("b"))
		pods := newPods(t, "pods", source)
		c := newController(t, nothing, enqueue.Options{Name: "website", Elected: make(chan struct{}), StandbyDeletes: 1}, enqueue.For(pods))
		ctx, log := logged(t.Context(), t)
		ctx, cancel := context.WithCancel(ctx)
		var group informer.Group
		if err := errors.Join(group.Add(c), group.Add(pods)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- group.Run(ctx) }()
		for _, name := range []string{"a", "b"} {
			time.Sleep(time.Second)
			if _, err := source.Delete(key{Namespace: "ns", Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		text := log()
		if n := strings.Count(text, enqueue.ErrStandbyDeletesDropped.Error()); n != 1 || !strings.Contains(text, "website") {
			t.Errorf("the log has %d lines about the loss, want 1 that names the controller: %s", n, text)
		}
	})
}

func TestAWaitEndsWhenAControllerIsRemovedThatNobodyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, nothing, enqueue.Options{Name: "website"}, enqueue.For(newPods(t, "pods", informertest.NewSource(pod("p")))))
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { done <- c.WaitForSync(ctx) }()
		synctest.Wait()
		c.Removed()
		c.Removed() // the second does nothing
		if err := <-done; !errors.Is(err, informer.ErrStopped) || !strings.Contains(err.Error(), "Run of informer pods") {
			t.Errorf("WaitForSync returned %v, want ErrStopped, and that nobody has run the informer", err)
		}
	})
}

func TestAControllerThatHasEndedQueuesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a"))
		pods := newPods(t, "pods", source)
		ended := newController(t, nothing, enqueue.Options{Name: "ended"}, enqueue.For(pods))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := ended.Run(ctx); err != nil {
			t.Error(err)
		}
		var group informer.Group
		stop := runGroup(t, &group, pods)
		time.Sleep(time.Second)
		if h := ended.Health(); h.Queued != 0 || !h.Stopped {
			t.Errorf("it has queued %d keys and is stopped: %v, want none and true", h.Queued, h.Stopped)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The owner before has an object less, which nothing else shows it.
func TestAnUpdateLeadsToTheOwnersBeforeAndAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(name string) *corev1.Pod { return pod("p", ownedBy(name)) }
		p := newProgram(t, of("before"))
		p.sources = func(pods *informer.CustomCacheInformer[*corev1.Pod]) []enqueue.Source[key] {
			return []enqueue.Source[key]{enqueue.Owns(pods, enqueue.Owners{Kind: schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}})}
		}
		p.start()
		p.called("before")
		p.source.Apply(of("after"))
		p.rest()
		p.called("after", "before", "before")
	})
}

// The watchers of a controller have its name, so that the page and the metrics tell whose they are.
func TestTheWatchersOfAControllerHaveItsName(t *testing.T) {
	pods, others := newPods(t, "pods", informertest.NewSource[*corev1.Pod]()), newPods(t, "others", informertest.NewSource[*corev1.Pod]())
	owners := enqueue.Owners{Kind: schema.GroupKind{Kind: "Website"}}
	newController(t, nothing, enqueue.Options{Name: "website"},
		enqueue.For(pods), enqueue.Owns(pods, owners), enqueue.For(others), enqueue.For(others).With(informer.WatcherOptions{Name: "mine"}))
	for inf, want := range map[*informer.CustomCacheInformer[*corev1.Pod]]string{pods: "[website website-2]", others: "[mine website]"} {
		var names []string
		for _, w := range inf.Health().Watchers {
			names = append(names, w.Name)
		}
		if fmt.Sprint(names) != want {
			t.Errorf("the watchers of %s are %v, want %s", inf.Health().Name, names, want)
		}
	}
}
