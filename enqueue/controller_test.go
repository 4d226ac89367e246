package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	"github.com/customcacheinformer/informer/internal/testkit"
)

type (
	key         = types.NamespacedName
	podInformer = informer.CustomCacheInformer[*corev1.Pod]
)

func nothing(context.Context, key) (time.Duration, error) { return 0, nil }

// newPods returns an informer of that name, which is not run.
func newPods(t *testing.T, name string, source *informertest.Source[*corev1.Pod]) *podInformer {
	t.Helper()
	pods, err := informer.NewFrom(source, informer.Options[*corev1.Pod]{Name: name, ErrorHandler: testkit.Ignore})
	testkit.Must(t, err)
	return pods
}

func newController(t *testing.T, reconcile func(context.Context, key) (time.Duration, error), opts enqueue.Options, sources ...enqueue.Source[key]) *enqueue.Controller[key] {
	t.Helper()
	c, err := enqueue.NewController(reconcile, opts, sources...)
	testkit.Must(t, err)
	return c
}

// runGroup runs a group of members until stop is called, or until the end of the test.
func runGroup(t *testing.T, group *informer.Group, members ...informer.Member) (stop func()) {
	t.Helper()
	for _, m := range members {
		testkit.Must(t, group.Add(m))
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
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

// Nothing but its own informers may keep a controller from its start, and none of them may be missing. For
// Options.Reads see TestHealthNamesTheInformersThatAControllerWaitsFor.
func TestAControllerStartsWhenItsInformersHaveSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := informertest.NewSource[*corev1.Pod]()
		missing.Fail("list", testkit.Forbidden("pods"), -1)
		missing.Fail("watch", testkit.Forbidden("pods"), -1)
		a, b := newPods(t, "a", informertest.NewSource(pod("p"))), newPods(t, "b", missing)
		// A watcher of another part of the program blocks until the end.
		_, err := a.AddWatcher(informer.WatcherFunc[*corev1.Pod](func(ctx context.Context, _ informer.Event[*corev1.Pod]) error { <-ctx.Done(); return nil }), informer.WatcherOptions{})
		testkit.Must(t, err)
		quick := newController(t, nothing, enqueue.Options{Name: "quick"}, enqueue.For(a))
		waits := newController(t, nothing, enqueue.Options{Name: "waits"}, enqueue.For(a), enqueue.For(b))
		runGroup(t, &informer.Group{}, quick, waits, a, b)
		time.Sleep(time.Second)
		for c, want := range map[*enqueue.Controller[key]]bool{quick: true, waits: false} {
			h := c.Health()
			if done := h.Succeeded > 0; !h.Started || h.Synced != want || done != want || (h.Ready() == nil) != want {
				t.Errorf("%s: started %v, synced %v, calls %d, %v, want %v", h.Name, h.Started, h.Synced, h.Succeeded, h.Ready(), want)
			}
		}
		var e *informer.SyncError
		if err := waits.WaitForSync(testkit.Within(t, time.Second)); !errors.As(err, &e) || fmt.Sprint(e.Late) != "[informer b]" || !apierrors.IsForbidden(err) {
			t.Errorf("WaitForSync returned %v, want a *SyncError that names informer b and what is forbidden", err)
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
		stop := runGroup(t, &informer.Group{}, pods, c) // the informer was added first
		time.Sleep(time.Second)
		done := make(chan struct{})
		go func() { stop(); close(done) }()
		time.Sleep(time.Minute)
		if !c.Health().Stopped || pods.Health().Stopped {
			t.Errorf("while a call is under way, controller stopped: %v, informer stopped: %v, want true and false", c.Health().Stopped, pods.Health().Stopped)
		}
		source.Apply(pod("b"))
		synctest.Wait()
		if _, there, _ := pods.Get(key{Namespace: "ns", Name: "b"}); !there {
			t.Error("the call can no longer see what happens")
		}
		close(returns)
		<-done
		if !pods.Health().Stopped {
			t.Error("the informer still runs")
		}
	})
}

// A key that was given up is tried again at its next event, with all of its attempts.
func TestAKeyThatWasGivenUpBeginsAgainAtItsNextEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{MaxAttempts: 3}, returning(slices.Repeat([]result{{err: errors.New("no luck")}}, 5)...))
		for i, want := range [][]string{{"k@0", "k@1", "k@3"}, {"k@3600", "k@3601", "k@3603"}} {
			r.add("k")
			time.Sleep(time.Hour)
			r.expect(want...)
			if h := r.Health(); h.Failing != 1-i {
				t.Errorf("%d failing keys, want %d", h.Failing, 1-i)
			}
		}
	})
}

func TestALongWaitIsLogged(t *testing.T) {
	for name, elected := range map[string]bool{"informer pods": false, "the election": true} {
		testkit.InBubble(t, name, func(t *testing.T) {
			var opts enqueue.Options
			election := make(chan struct{})
			if elected {
				opts.Elected = election
			}
			r := prepare(t, opts, returning())
			release := func() { close(election) }
			if !elected {
				r.source.SetFaults(informertest.Faults{HoldLists: true, RejectWatchList: true})
				release = r.source.Heal
			}
			ctx, logs := logged(t.Context(), t)
			r.run(ctx)
			time.Sleep(29 * time.Second)
			if strings.Contains(logs(), "waiting") {
				t.Errorf("logged after 29 s:\n%s", logs())
			}
			time.Sleep(time.Hour)
			if n := strings.Count(logs(), "Still waiting"); n != 1 || !strings.Contains(logs(), fmt.Sprintf("late=[%q]", name)) || !strings.Contains(logs(), `queue="website"`) {
				t.Errorf("after an hour of waiting for %s the log has %d lines, want one:\n%s", name, n, logs())
			}
			release()
			time.Sleep(time.Minute)
			if !strings.Contains(logs(), "The wait is over") {
				t.Errorf("the end of the wait is not logged:\n%s", logs())
			}
		})
	}
}

func TestTheErrorHandlerOfAGroupReachesAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := newPods(t, "pods", informertest.NewSource(pod("a")))
		c := newController(t, func(context.Context, key) (time.Duration, error) { return 0, informer.ErrPermanent }, enqueue.Options{Name: "website"}, enqueue.For(pods))
		var reported testkit.ErrorLog
		runGroup(t, &informer.Group{ErrorHandler: reported.Handle}, pods, c)
		time.Sleep(time.Second)
		var failed *enqueue.Error
		if errs := reported.Take(); len(errs) != 1 || !errors.As(errs[0], &failed) || failed.Name != "website" {
			t.Errorf("reported %v, want one error", errs)
		}
	})
}

func TestWithoutAnErrorHandlerALossOnStandbyIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := informertest.NewSource(pod("a"), pod("b"))
		pods := newPods(t, "pods", source)
		c := newController(t, nothing, enqueue.Options{Name: "website", Elected: make(chan struct{}), StandbyDeletes: 1}, enqueue.For(pods))
		informertest.Run(t, pods)
		ctx, log := logged(t.Context(), t)
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		for _, name := range []string{"a", "b"} {
			time.Sleep(time.Second)
			_, err := source.Delete(key{Namespace: "ns", Name: name})
			testkit.Must(t, err)
		}
		testkit.Must(t, <-done)
		if n := strings.Count(log(), enqueue.ErrStandbyDeletesDropped.Error()); n != 1 || !strings.Contains(log(), "website") {
			t.Errorf("the log has %d lines about the loss, want 1 that names the controller: %s", n, log())
		}
	})
}

func TestAWaitEndsWhenAControllerThatDoesNotRunIsRemoved(t *testing.T) {
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
			t.Errorf("WaitForSync returned %v, want ErrStopped, and that the informer was not run", err)
		}
	})
}

func TestAnEndedControllerQueuesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, enqueue.Options{}, returning())
		r.stop()
		synctest.Wait()
		r.add("k")
		synctest.Wait()
		if h := r.Health(); h.Queued != 0 || !h.Stopped {
			t.Errorf("it has queued %d keys and is stopped: %v, want none and true", h.Queued, h.Stopped)
		}
	})
}

// The owner before has an object less, which nothing else shows it.
func TestAnUpdateLeadsToTheOwnersBeforeAndAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(name string) *corev1.Pod { return pod("p", ownedBy(name)) }
		p := newProgram(t, of("before"))
		p.sources = func(pods *podInformer) []enqueue.Source[key] {
			return []enqueue.Source[key]{enqueue.Owns(pods, enqueue.Owners{Kind: schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}})}
		}
		p.start()
		p.called("before")
		p.source.Apply(of("after"))
		p.rest()
		p.called("after", "before", "before")
	})
}

// The watchers of a controller have its name, so that the page and the metrics show whose they are.
func TestTheWatchersOfAControllerHaveItsName(t *testing.T) {
	pods, others := newPods(t, "pods", informertest.NewSource[*corev1.Pod]()), newPods(t, "others", informertest.NewSource[*corev1.Pod]())
	owners := enqueue.Owners{Kind: schema.GroupKind{Kind: "Website"}}
	newController(t, nothing, enqueue.Options{Name: "website"},
		enqueue.For(pods), enqueue.Owns(pods, owners), enqueue.For(others), enqueue.For(others).With(informer.WatcherOptions{Name: "mine"}))
	for inf, want := range map[*podInformer]string{pods: "[website website-2]", others: "[mine website]"} {
		var names []string
		for _, w := range inf.Health().Watchers {
			names = append(names, w.Name)
		}
		if fmt.Sprint(names) != want {
			t.Errorf("the watchers of %s are %v, want %s", inf.Health().Name, names, want)
		}
	}
}
