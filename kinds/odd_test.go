package kinds_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/kinds"
)

func refuses(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the error is %v, want %q", err, text)
	}
}

func TestArgumentsThatCannotBeUsedAreNamed(t *testing.T) {
	clients := clientsOf(newServer())
	for text, without := range map[string]func(c *kinds.Clients){
		"Clients.Dynamic":   func(c *kinds.Clients) { c.Dynamic = nil },
		"Clients.Discovery": func(c *kinds.Clients) { c.Discovery = nil },
		"Clients.Metadata":  func(c *kinds.Clients) { c.Metadata = nil },
	} {
		some := clients
		without(&some)
		_, err := kinds.NewMetadata(some, kinds.Options[partial]{})
		refuses(t, err, text+" is nil")
		if _, err := kinds.New(some, kinds.Options[whole]{}); (err == nil) != (text == "Clients.Metadata") {
			t.Errorf("New without %s: %v", text, err)
		}
	}
	_, err := kinds.New(clients, kinds.Options[whole]{Informer: informer.Options[whole]{Indexers: informer.Indexers[whole]{"": nil}}})
	refuses(t, err, "Indexers")
	set := must(kinds.New(clients, kinds.Options[whole]{}))
	for text, k := range map[string]kinds.Kind{
		"Kind.Kind is empty":  {Group: "example.com"},
		"in Kind.Group":       {Kind: "Deployment.apps"},
		"in Kind.Version":     {Kind: "Deployment", Group: "apps/v1"},
		"Kind.Kind: a":        {Kind: "two words"},
		"Kind.Group":          {Kind: "Widget", Group: "example_com"},
		"Kind.Version":        {Kind: "Widget", Version: "1"},
		"Kind.Namespace":      {Kind: "Widget", Namespace: "a|b"},
		"Kind.Selector":       {Kind: "Widget", Selector: "=,"},
		"longer than 253":     {Kind: "Widget", Selector: "app in (" + strings.Repeat("aaaaaaaaaa,", 25) + "b)" + strings.Repeat(",b"+strings.Repeat("c", 60), 5)},
		"Kind.Group: must be": {Kind: "Widget", Group: strings.Repeat("g", 300) + "|"},
	} {
		_, err := set.Acquire(k)
		refuses(t, err, text)
		refuses(t, err, "kinds kinds: Acquire")
	}
	if h := set.Health(); len(h.Kinds) != 0 || h.Ready() == nil || h.Live() != nil || h.HasRun() {
		t.Errorf("%+v", h)
	}
	if _, ok := set.Find(""); ok {
		t.Error("there is a kind without a name")
	}
	lease := must(set.Acquire(kinds.Kind{Kind: "Pod"}))
	_, err = lease.AddWatcher(nil, informer.WatcherOptions{})
	refuses(t, err, "nil")
	_, err = lease.AddWatcher(informer.WatcherFuncs[whole]{}, informer.WatcherOptions{Workers: -1})
	refuses(t, err, "Workers")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refuses(t, lease.WaitForSync(ended), "the CRDs are not listed yet")
	refuses(t, set.WaitForSync(ended), "the kinds of the server and Run")
}

func TestASetAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.define(widgets)
		set := must(kinds.New(clientsOf(s), kinds.Options[whole]{Name: "all"}))
		pods := kinds.Kind{Kind: "Pod"}
		before := must(set.Acquire(pods))
		informertest.Run(t, set.Informer())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- set.Run(ctx) }()
		if err := errors.Join(set.WaitForSync(t.Context()), before.WaitForSync(t.Context())); err != nil {
			t.Fatal(err)
		}
		if err := set.Run(ctx); !errors.Is(err, informer.ErrAlreadyRun) {
			t.Errorf("the second Run: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := set.Acquire(widget); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("Acquire after the end: %v", err)
		}
		if err := set.WaitForSync(t.Context()); err != nil {
			t.Error(err) // it has synced before
		}
		h := set.Health()
		if err := h.Ready(); !errors.Is(err, informer.ErrStopped) || len(h.Kinds) != 1 {
			t.Errorf("%v, %+v", err, h)
		}
		if text, err := json.Marshal(h); err != nil || !strings.Contains(string(text), `"state":"reading"`) {
			t.Errorf("%s, %v", text, err)
		}
		before.Release()
		synctest.Wait()
		if got := set.Informer().Engaged(); len(got) != 0 {
			t.Errorf("engaged: %v", got)
		}
	})
}

func TestASetThatEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := must(kinds.New(clientsOf(newServer()), kinds.Options[whole]{}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := set.Run(ctx); err != nil {
			t.Error(err)
		}
		if err := set.WaitForSync(t.Context()); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("%v", err)
		}
	})
}

// oddDiscovery adds answers that no API server gives.
type oddDiscovery struct{ kinds.Discovery }

func (d oddDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := d.Discovery.ServerGroupsAndResources()
	odd := &metav1.APIResourceList{GroupVersion: "v1"}
	for _, kind := range []string{"", "Pod@v1", "Pod:default", "A B", "|"} {
		odd.APIResources = append(odd.APIResources, metav1.APIResource{Name: "odd", Kind: kind, Verbs: metav1.Verbs{"list", "watch"}})
	}
	return append(groups, nil, &metav1.APIGroup{}), append(lists, nil, &metav1.APIResourceList{GroupVersion: "a/b/c"}, odd), err
}

func TestOddAnswersOfDiscoveryAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		clients := clientsOf(s)
		clients.Discovery = oddDiscovery{clients.Discovery}
		set := must(kinds.New(clients, kinds.Options[whole]{Wanted: func(o kinds.Offer) bool { return o.Group == "" }}))
		informertest.Run(t, set.Informer())
		informertest.Run(t, set)
		must(set.Acquire(kinds.Kind{Kind: "Pod", Version: "v1"}))
		after(time.Minute)
		all := set.Health().Kinds
		if len(all) != 2 || all[0].Name != "Pod" || all[1].Name != "Pod@v1" || all[1].Resource != "pods" {
			t.Errorf("%+v", all)
		}
	})
}

// TestASetHasNotSyncedWhileTheServerIsDown starts a set when requests fail or take long.
func TestASetHasNotSyncedWhileTheServerIsDown(t *testing.T) {
	for name, down := range map[string]struct {
		paths string // that fail, separated by spaces
		hang  bool   // without an answer
		want  time.Duration
	}{
		"all":               {"customresourcedefinitions apiservices /api /apis widgets", false, 45 * time.Second},
		"slow CRDs":         {"customresourcedefinitions", true, 20 * time.Second},
		"discovery":         {"/apis", false, 20 * time.Second},
		"discovery, always": {"/apis", false, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.define(widgets)
				start := time.Now()
				s.fail = func(_, at string) *metav1.Status {
					fails := slices.ContainsFunc(strings.Fields(down.paths), func(path string) bool { return strings.HasSuffix(at, path) })
					if fails && down.hang {
						time.Sleep(time.Until(start.Add(down.want))) // of the bubble
					} else if fails && time.Since(start) < down.want {
						return everythingFails("", "")
					}
					return nil
				}
				silent := func(context.Context, error) {}
				set := must(kinds.New(clientsOf(s), kinds.Options[whole]{
					Wanted: func(o kinds.Offer) bool { return o.Kind == "Widget" }, ErrorHandler: silent, Informer: informer.Options[whole]{ErrorHandler: silent},
				}))
				group := &informer.Group{}
				if err := errors.Join(group.Add(set.Informer()), group.Add(set)); err != nil {
					t.Fatal(err)
				}
				informertest.Run(t, group)
				took := time.Since(start)
				_, reads := set.Find("Widget.example.com")
				if err := set.WaitForSync(t.Context()); err != nil || !reads || took < min(down.want, 30*time.Second) || took > min(down.want, 30*time.Second)+time.Minute {
					t.Errorf("it has synced after %v, with the kind %t: %v", took, reads, err)
				}
			})
		})
	}
}

// TestAServerThatHangsHoldsUpNothingElse has one request after another without an answer.
func TestAServerThatHangsHoldsUpNothingElse(t *testing.T) {
	for _, path := range []string{"customresourcedefinitions", "apiservices", "apis", "widgets"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.define(widgets)
				s.objects("pods.", "default", "p")
				hang := make(chan struct{})
				s.fail = func(_, at string) *metav1.Status {
					if strings.HasSuffix(at, path) {
						<-hang
					}
					return nil
				}
				var l log
				set := must(kinds.New(clientsOf(s), kinds.Options[whole]{ErrorHandler: l.handle}))
				informertest.Run(t, set.Informer())
				informertest.Run(t, set)
				pods, widgets := must(set.Acquire(kinds.Kind{Kind: "Pod"})), must(set.Acquire(widget))
				after(2 * time.Minute)
				states := map[kinds.Kind]kinds.State{pods.Kind(): pods.Health().State, widgets.Kind(): widgets.Health().State}
				if path != "apis" && states[pods.Kind()] != kinds.Reading || path != "widgets" && states[widgets.Kind()] != kinds.Reading {
					t.Errorf("the states are %v", states)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := pods.WaitForSync(ctx); (err == nil) != (path != "apis") {
					t.Errorf("WaitForSync: %v", err)
				}
				close(hang)
				after(2 * time.Minute)
				if err := errors.Join(pods.WaitForSync(t.Context()), set.WaitForSync(t.Context())); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestAcquireAndReleaseMayBeCalledInACallback follows a kind with another one.
func TestAcquireAndReleaseMayBeCalledInACallback(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(s *server) {
		s.define(widgets)
		s.objects(widgets.name(), "default", "a")
		s.objects("pods.", "default", "p")
	}, func(w *world) {
		var pods *kinds.Lease[whole]
		w.acquire(widget)
		must(w.set.Informer().AddWatcher(informer.WatcherFunc[whole](func(_ context.Context, e informer.Event[whole]) (err error) {
			switch {
			case e.Cluster() != "Widget.example.com":
			case e.Type == informer.EventAdded:
				pods, err = w.set.Acquire(kinds.Kind{Kind: "Pod"})
			case e.Type == informer.EventDeleted:
				pods.Release()
			}
			return err
		}), informer.WatcherOptions{}))
		after(time.Second)
		w.expect("initial added Pod|p", "initial added Widget.example.com|a")
		w.delete(widgets.name(), "default/a")
		after(time.Second)
		w.expect("watch deleted Widget.example.com|a")
		if got := w.set.Informer().Engaged(); len(got) != 1 {
			w.t.Errorf("engaged: %v", got)
		}
	})
}
