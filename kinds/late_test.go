package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/kinds"
)

// inTheFallback has two kinds of a group, while the CRDs cannot be listed.
func inTheFallback(s *server) {
	others := widgets
	others.plural, others.kind = "others", "Other"
	s.fail = forbidden
	s.define(widgets)
	s.define(others)
	s.objects(widgets.name(), "default", "a")
}

// The CRDs can be listed again before discovery has missed the kind for long enough. They have no UID by which the kind was known.
func TestAKindGoesWhileTheRightsComeBack(t *testing.T) {
	for _, pause := range []time.Duration{0, 5 * time.Second, 20 * time.Second} {
		run(t, kinds.Options[whole]{}, inTheFallback, func(w *world) {
			w.acquire(widget)
			after(time.Minute)
			w.expect(widgetEvents("initial added|a")...)
			w.undefine(widgets)
			after(pause)
			w.do(func() { w.fail = nil })
			after(10 * time.Minute)
			w.is("Widget.example.com", kinds.Waiting, "does not offer")
			w.expect(widgetEvents("left deleted|a")...)
		})
	}
}

func TestDiscoveryIsBehindANewAPIService(t *testing.T) {
	wanted := func(o kinds.Offer) bool { return o.Kind == "Flunder" }
	for _, opts := range []kinds.Options[whole]{{}, {Wanted: wanted}} {
		discoveryIsBehind(t, opts)
	}
}

func discoveryIsBehind(t *testing.T, opts kinds.Options[whole]) {
	run(t, opts, func(*server) {}, func(w *world) {
		if opts.Wanted == nil {
			w.acquire(flunder)
		}
		after(10 * time.Minute)
		before := w.asked("/apis ")
		w.do(func() { w.hidden["wardle.example.com"] = true })
		w.serve(&resource{group: "wardle.example.com", name: "flunders", kind: "Flunder", versions: []string{"v1"}, namespaced: true})
		after(2 * time.Minute)
		if opts.Wanted == nil {
			w.is("Flunder.wardle.example.com", kinds.Waiting, "does not offer")
		}
		w.do(func() { delete(w.hidden, "wardle.example.com") })
		after(time.Minute)
		w.is("Flunder.wardle.example.com", kinds.Reading, "")
		after(time.Hour)
		if n := w.asked("/apis ") - before; n > 12 {
			w.t.Errorf("%d discoveries", n)
		}
	})
}

// Nothing asked for the kind when discovery was behind its new APIService, so that the set has stopped asking discovery.
func TestAKindIsAskedForAgainWhenItIsAcquired(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(s *server) { s.hidden["wardle.example.com"] = true }, func(w *world) {
		w.serve(&resource{group: "wardle.example.com", name: "flunders", kind: "Flunder", versions: []string{"v1"}, namespaced: true})
		after(10 * time.Minute)
		w.do(func() { delete(w.hidden, "wardle.example.com") })
		after(10 * time.Minute)
		before := w.asked("/apis ")
		lease := w.acquire(flunder)
		after(10 * time.Second)
		w.is("Flunder.wardle.example.com", kinds.Reading, "")
		w.acquire(flunder)
		lease.Release()
		after(10 * time.Minute)
		if n := w.asked("/apis ") - before; n != 1 {
			w.t.Errorf("%d discoveries", n)
		}
	})
}

func TestASetWithoutItsInformerIsNotReady(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(*server) {}, func(w *world) {
		set := must(kinds.New(clientsOf(w.server), kinds.Options[whole]{}))
		runAll(w.t, set)
		after(time.Minute)
		refuses(w.t, set.Health().Ready(), "add Set.Informer to the group")
	})
}

// widgetsForbidden makes the server offer widgets that may not be read.
func widgetsForbidden(s *server) {
	s.define(widgets)
	s.fail = widgetsFail("list watch stream", failure(403, metav1.StatusReasonForbidden, "no rights"))
}

func TestAReleaseEndsTheWaitOfItsLease(t *testing.T) {
	for name, prepare := range map[string]func(*server){
		"that is not served": func(*server) {},
		"that is not listed": widgetsForbidden,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, kinds.Options[whole]{}, prepare, func(w *world) {
				one := w.acquire(widget)
				w.acquire(widget) // keeps the kind
				done := make(chan error, 1)
				go func() { done <- one.WaitForSync(w.t.Context()) }()
				after(time.Second)
				one.Release()
				if err := <-done; !errors.Is(err, kinds.ErrReleased) {
					w.t.Errorf("WaitForSync: %v", err)
				}
			})
		})
	}
}

func TestTheEndOfASetEndsTheWaitOfItsLeases(t *testing.T) {
	run(t, kinds.Options[whole]{}, widgetsForbidden, func(w *world) {
		set := must(kinds.New(clientsOf(w.server), kinds.Options[whole]{Name: "short", ErrorHandler: w.log.handle}))
		lease := must(set.Acquire(widget))
		runAll(w.t, set.Informer())
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		if err := set.Run(ctx); err != nil {
			w.t.Error(err)
		}
		err := lease.WaitForSync(w.t.Context())
		refuses(w.t, err, "no rights")
		if !errors.Is(err, informer.ErrStopped) {
			w.t.Errorf("WaitForSync: %v", err)
		}
	})
}

func TestTheReasonOfALateStartIsThatOfAKind(t *testing.T) {
	run(t, kinds.Options[whole]{}, widgetsForbidden, func(w *world) {
		set := must(kinds.New(clientsOf(w.server), kinds.Options[whole]{Name: "late", ErrorHandler: w.log.handle}))
		must(set.Acquire(widget))
		ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
		defer cancel()
		var running sync.WaitGroup
		defer running.Wait()
		for _, m := range []informer.Member{set.Informer(), set} {
			running.Go(func() { _ = m.Run(ctx) })
		}
		waits, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		err := set.WaitForSync(waits)
		refuses(w.t, err, "no rights")
		if !apierrors.IsForbidden(err) {
			w.t.Errorf("%v is not forbidden", err)
		}
		refuses(w.t, set.Health().Ready(), "Widget.example.com")
	})
}

// The add takes effect and fails. Before it is tried again, the object leaves the selection.
func TestALeaseTakesTheResultOfSelect(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(s *server) {
		s.define(widgets)
		s.objects(widgets.name(), "default", "a")
	}, func(w *world) {
		selected := func(o whole) bool { return o.GetLabels()["app"] == "a" }
		var got []string
		watcher := informer.Select(informer.WatcherFunc[whole](func(_ context.Context, e informer.Event[whole]) error {
			if got = append(got, e.Type.String()); len(got) == 1 {
				return errors.New("after it took effect")
			}
			return nil
		}), selected)
		lease := w.acquire(widget)
		must(lease.AddWatcher(watcher, informer.WatcherOptions{Retry: informer.Backoff(time.Hour, time.Hour, 0)}))
		after(time.Second)
		w.put(widgets.name(), obj{"metadata": obj{"name": "a", "namespace": "default", "labels": obj{"app": "other"}}, "spec": obj{"size": "1"}})
		after(3 * time.Hour)
		if fmt.Sprint(got) != "[added deleted]" {
			t.Errorf("the watcher got %v", got)
		}
		for name, bad := range map[string]informer.ResourceWatcher[whole]{
			"the function given to Select is nil": informer.Select(informer.WatcherFuncs[whole]{}, nil),
			"the watcher is nil":                  informer.Select[whole](nil, selected),
		} {
			if _, err := lease.AddWatcher(bad, informer.WatcherOptions{}); err == nil || !strings.HasSuffix(err.Error(), name) {
				t.Errorf("AddWatcher: %v, want an error that ends in %q", err, name)
			}
		}
	})
}

// A slow first list is a reason to look, but nothing has failed: the kind is not parked.
func TestAKindWhoseFirstListIsSlowIsNotParked(t *testing.T) {
	var first sync.Once
	run(t, kinds.Options[whole]{}, func(s *server) {
		s.define(widgets)
		s.objects(widgets.name(), "default", "a")
		s.fail = func(_, path string) *metav1.Status {
			if strings.HasSuffix(path, "/"+widgets.plural) {
				first.Do(func() { after(10 * time.Minute) })
			}
			return nil
		}
	}, func(w *world) {
		w.acquire(widget)
		after(5 * time.Minute)
		h := w.set.Health()
		if n, longest := h.Parked(); n > 0 || longest > 0 || len(h.Kinds) != 1 || h.Kinds[0].State != kinds.Reading {
			w.t.Errorf("%d kinds are parked, the first for %v: %+v", n, longest, h.Kinds)
		}
		w.is("Widget.example.com", kinds.Reading, "")
		after(time.Hour)
		w.expect(widgetEvents("initial added|a")...)
	})
}
