package kinds_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/kinds"
)

const goneTime = 3 * time.Second // after the delete of a CRD, until the objects are gone

// These events are those of the kind Widget.
func widgetEvents(events ...string) []string {
	for n, e := range events {
		verb, name, _ := strings.Cut(e, "|")
		events[n] = verb + " Widget.example.com|" + name
	}
	return events
}

func TestAKindIsReadWhileItsCRDIsThere(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(*server) {}, func(w *world) {
		l := w.acquire(widget)
		w.is("Widget.example.com", kinds.Waiting, "does not offer")
		c := widgets
		c.notEstablished = true
		w.define(c)
		w.is("Widget.example.com", kinds.Waiting, "not established: installing")
		w.objects(widgets.name(), "default", "a", "b")
		w.define(widgets)
		if err := l.WaitForSync(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		after(time.Second)
		w.is("Widget.example.com", kinds.Reading, "")
		w.expect(widgetEvents("initial added|a", "initial added|b")...)
		w.undefine(widgets)
		after(goneTime)
		w.is("Widget.example.com", kinds.Waiting, "the CRD was deleted")
		w.expect(widgetEvents("left deleted|a", "left deleted|b")...)
		w.define(c)
		w.objects(widgets.name(), "default", "c")
		w.define(widgets)
		after(time.Second)
		w.expect(widgetEvents("initial added|c")...)
	})
}

// widgetsFail returns a failure of the requests for widgets.
func widgetsFail(verbs string, status *metav1.Status) func(verb, path string) *metav1.Status {
	return func(verb, path string) *metav1.Status {
		if strings.HasSuffix(path, "/widgets") && strings.Contains(verbs, verb) {
			return status
		}
		return nil
	}
}

func TestTroubleParksAKindAndDeletesNothing(t *testing.T) {
	edit := func(change func(c *crd)) func(s *server) {
		return func(s *server) {
			c := widgets
			change(&c)
			s.define(c)
		}
	}
	fails := func(verbs string, code int32, reason metav1.StatusReason, message string) func(s *server) {
		return func(s *server) {
			s.do(func() { s.fail = widgetsFail(verbs, failure(code, reason, message)) })
			s.cut(widgets.name())
		}
	}
	for name, trouble := range map[string]struct {
		make   func(s *server)
		reason string
	}{
		"forbidden": {fails("list watch stream", 403, metav1.StatusReasonForbidden, "no right"), "no right"},
		"a conversion webhook": {fails("list watch stream", 500, metav1.StatusReasonInternalError,
			`conversion webhook for example.com/v2, Kind=Widget failed: connection refused`), "conversion webhook"},
		"a list that expires":  {fails("list watch stream", 410, metav1.StatusReasonExpired, "too old"), "too old"},
		"404 although there":   {fails("list watch stream", 404, metav1.StatusReasonNotFound, "page not found"), "not found"},
		"410 although there":   {fails("list watch stream", 410, metav1.StatusReasonGone, "moved"), "moved"},
		"not established":      {edit(func(c *crd) { c.notEstablished = true }), "not established: installing"},
		"names not accepted":   {edit(func(c *crd) { c.notAccepted = true }), "not accepted: the kind is in use"},
		"terminating":          {edit(func(c *crd) { c.terminating = true }), "being deleted"},
		"no version is served": {edit(func(c *crd) { c.versions = nil }), "no version is served"},
		"discovery fails":      {func(s *server) { s.do(func() { s.fail = everythingFails }) }, "out of order"},
		"another kind's failure": {func(s *server) {
			s.do(func() {
				s.fail = func(_, path string) *metav1.Status {
					return map[bool]*metav1.Status{true: failure(403, metav1.StatusReasonForbidden, "no")}[strings.HasSuffix(path, "/pods")]
				}
			})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, kinds.Options[whole]{}, func(s *server) {
				s.define(widgets)
				s.objects(widgets.name(), "default", "a", "b")
			}, func(w *world) {
				w.acquire(widget)
				w.acquire(kinds.Kind{Kind: "Pod"})
				after(time.Second)
				w.expect(widgetEvents("initial added|a", "initial added|b")...)
				trouble.make(w.server)
				if trouble.reason == "out of order" {
					w.cut(widgets.name())
				}
				after(time.Minute)
				if trouble.reason != "" {
					w.is("Widget.example.com", kinds.Parked, trouble.reason)
				}
				for range 3 {
					after(10 * time.Minute)
					w.expect()
				}
				if objs, err := w.set.Informer().In("Widget.example.com").List("", nil); len(objs) != 2 || err != nil {
					w.t.Errorf("the informer has %d objects (%v)", len(objs), err)
				}
				// The other kind continues.
				if w.do(func() {}); trouble.reason != "out of order" && trouble.reason != "" {
					w.objects("pods.", "default", "p")
					after(time.Second)
					w.expect("watch added Pod|p")
				}
				// The trouble ends.
				w.do(func() { w.fail = nil })
				w.define(widgets)
				after(time.Minute)
				w.is("Widget.example.com", kinds.Reading, "")
				w.objects(widgets.name(), "default", "c")
				after(time.Second)
				w.expect(widgetEvents("watch added|c")...)
			})
		})
	}
}

func everythingFails(string, string) *metav1.Status {
	return failure(500, metav1.StatusReasonInternalError, "out of order")
}

func TestAMoveToAnotherVersionIsOneUpdate(t *testing.T) {
	prepare := func(s *server) {
		s.define(widgets)
		s.objects(widgets.name(), "default", "a", "b")
	}
	both, second := widgets, widgets
	both.versions, second.versions = []string{"v1", "v2"}, []string{"v2"}
	t.Run("whole", func(t *testing.T) {
		run(t, kinds.Options[whole]{}, prepare, func(w *world) {
			w.acquire(widget)
			pinned := widget
			pinned.Version = "v1"
			w.acquire(pinned)
			after(time.Second)
			w.log.events = nil
			w.define(both)
			after(time.Second)
			w.expect(widgetEvents("relist updated|a in v2", "relist updated|b in v2")...)
			w.define(second) // nothing changes for those that are read in v2
			w.objects(widgets.name(), "default", "a")
			after(time.Minute)
			w.is("Widget.example.com@v1", kinds.Parked, "version v1 is not served, but v2")
			w.expect(widgetEvents("watch updated|a in v2")...)
			w.define(widgets) // and back
			after(time.Minute)
			w.expect("relist updated Widget.example.com|a", "relist updated Widget.example.com|b", "watch updated Widget.example.com@v1|a")
		})
	})
	t.Run("metadata", func(t *testing.T) {
		runMetadata(t, prepare, func(w *world, set *kinds.Set[partial]) {
			if _, err := set.Acquire(widget); err != nil {
				w.t.Fatal(err)
			}
			after(time.Second)
			w.expect(widgetEvents("initial added|a", "initial added|b")...)
			w.define(second)
			after(time.Minute)
			w.expect() // the metadata are the same in both
			w.objects(widgets.name(), "default", "b")
			after(time.Second)
			w.expect(widgetEvents("watch updated|b")...)
			if h, _ := set.Find("Widget.example.com"); h.Version != "v2" || h.State != kinds.Reading {
				w.t.Errorf("%+v", h)
			}
		})
	})
}

func TestARecreatedCRDIsANewKind(t *testing.T) {
	for name, change := range map[string]func(c *crd){
		"the same":                           func(*crd) {},
		"another scope":                      func(c *crd) { c.scope = "Cluster" },
		"another schema, version and plural": func(c *crd) { c.schema, c.versions, c.plural = "new", []string{"v2"}, "widgetz" },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, kinds.Options[whole]{}, func(s *server) {
				s.define(widgets)
				s.objects(widgets.name(), "default", "a", "b")
			}, func(w *world) {
				l := w.acquire(widget)
				after(time.Second)
				w.log.events = nil
				again, in := widgets, ""
				if change(&again); again.versions[0] == "v2" {
					in = " in v2"
				}
				w.undefine(widgets)
				w.define(again)
				after(time.Second) // otherwise its watch may be ahead of that of the CRD, and events come that cancel each other out
				namespace := "default"
				if again.scope == "Cluster" {
					namespace = ""
				}
				w.objects(again.name(), namespace, "a")
				after(time.Minute)
				w.expect(widgetEvents("watch added|a"+in, "relist deleted|a", "relist deleted|b")...)
				if h := l.Health(); h.State != kinds.Reading || h.Namespaced != (namespace != "") || h.Resource != again.plural {
					w.t.Errorf("%+v", h)
				}
				// The set may have missed the time between them, too.
				w.do(func() {
					w.fail = func(_, path string) *metav1.Status {
						if strings.HasSuffix(path, "definitions") {
							return failure(503, metav1.StatusReasonServiceUnavailable, "restarting")
						}
						return nil
					}
				})
				w.cut(crdsName)
				after(time.Second)
				w.undefine(again)
				w.define(widgets)
				w.objects(widgets.name(), "default", "z")
				after(time.Minute) // its watch is ahead, if the path is the same
				w.do(func() { w.fail = nil })
				after(2 * time.Minute)
				if n := w.log.count("|z"); n != 1 {
					w.t.Errorf("%d events of the new object: %q", n, w.log.events)
				}
				objs, err := w.set.Informer().In("Widget.example.com").List("", nil)
				if len(objs) != 1 || err != nil || objs[0].GetName() != "z" {
					w.t.Errorf("the informer has %v (%v)", objs, err)
				}
			})
		})
	}
}

func TestAnAggregatedKindGoesWithItsGroup(t *testing.T) {
	flunders := func(s *server) {
		s.serve(&resource{group: "wardle.example.com", name: "flunders", kind: "Flunder", versions: []string{"v1"}, namespaced: true})
		s.objects("flunders.wardle.example.com", "default", "a")
	}
	run(t, kinds.Options[whole]{}, flunders, func(w *world) {
		w.acquire(kinds.Kind{Group: "wardle.example.com", Kind: "Flunder"})
		after(time.Second)
		w.expect("initial added Flunder.wardle.example.com|a")

		// The server behind the group is away: discovery is not complete, or does not show the group.
		for _, incomplete := range []map[string]bool{w.stale, w.hidden} {
			w.do(func() {
				incomplete["wardle.example.com"] = true
				w.fail = func(_, path string) *metav1.Status {
					return map[bool]*metav1.Status{true: failure(503, metav1.StatusReasonServiceUnavailable, "no endpoints")}[strings.Contains(path, "wardle")]
				}
			})
			w.service("wardle.example.com", "False")
			w.cut("flunders.wardle.example.com")
			after(10 * time.Second)
			w.is("Flunder.wardle.example.com", kinds.Parked, "")
			w.expect()
			w.do(func() { delete(incomplete, "wardle.example.com"); w.fail = nil })
			w.service("wardle.example.com", "True")
			after(time.Minute)
			w.is("Flunder.wardle.example.com", kinds.Reading, "")
		}
		w.expect()

		w.delete(servicesName, "v1.wardle.example.com")
		after(goneTime)
		w.is("Flunder.wardle.example.com", kinds.Waiting, "APIServices of group wardle.example.com were deleted")
		w.expect("left deleted Flunder.wardle.example.com|a")
		// Discovery shows the group for some time still, until it does not.
		after(time.Minute)
		w.do(func() { delete(w.kinds, "flunders.wardle.example.com") })
		after(time.Minute)
		w.expect()
		flunders(w.server)
		after(time.Minute)
		w.expect("initial added Flunder.wardle.example.com|a")
	})
}

// forbidden makes the server refuse requests for CRDs and APIServices.
func forbidden(_, path string) *metav1.Status {
	if strings.HasSuffix(path, "definitions") || strings.HasSuffix(path, "apiservices") {
		return failure(403, metav1.StatusReasonForbidden, "no right")
	}
	return nil
}

func TestDiscoveryTakesThePlaceOfTheCRDs(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(s *server) {
		s.fail = forbidden
		s.define(widgets)
		s.objects(widgets.name(), "default", "a")
	}, func(w *world) {
		l := w.acquire(widget)
		if err := l.WaitForSync(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		after(time.Second)
		w.expect(widgetEvents("initial added|a")...)
		if h := w.set.Health(); !h.Polls || !strings.Contains(h.CRDError, "no right") || !strings.Contains(h.ServiceError, "no right") || h.Ready() != nil {
			w.t.Errorf("%+v", h)
		}
		before := w.asked("/apis ")
		after(10 * time.Minute)
		if polls := w.asked("/apis ") - before; polls < 15 || polls > 20 {
			w.t.Errorf("%d discoveries in 10 min", polls)
		}
		if errs := w.log.take(); len(errs) != 2 || !strings.Contains(strings.Join(errs, "\n"), "discovery, every 30s, takes the place of the CRDs") {
			w.t.Errorf("the errors are %q", errs)
		}

		// A discovery that is not complete deletes nothing.
		w.do(func() { w.stale["example.com"] = true })
		after(2 * time.Minute)
		w.do(func() {
			w.fail = func(verb, path string) *metav1.Status {
				if path == "/apis" {
					return failure(403, metav1.StatusReasonForbidden, "no right") // which client-go takes for no groups
				}
				return forbidden(verb, path)
			}
		})
		after(2 * time.Minute)
		w.expect()
		w.is("Widget.example.com", kinds.Reading, "")
		w.do(func() { delete(w.stale, "example.com"); w.fail = forbidden })
		after(time.Minute)

		// Another version is preferred.
		both := widgets
		both.versions = []string{"v2", "v1"}
		w.define(both)
		after(time.Minute)
		w.expect(widgetEvents("relist updated|a in v2")...)

		// The 404 of a kind leads to a discovery, and the next one decides.
		w.undefine(both)
		after(10 * time.Second)
		w.is("Widget.example.com", kinds.Parked, "")
		w.expect()
		after(time.Minute)
		w.is("Widget.example.com", kinds.Waiting, "does not offer")
		w.expect(widgetEvents("left deleted|a in v2")...)

		// The rights come later.
		w.define(widgets)
		w.objects(widgets.name(), "default", "b")
		after(time.Minute)
		w.expect(widgetEvents("initial added|b")...)
		w.do(func() { w.fail = nil })
		after(5 * time.Minute)
		if h := w.set.Health(); h.Polls || h.CRDError != "" {
			w.t.Errorf("%+v", h)
		}
		before = w.asked("/apis ")
		after(time.Hour)
		if polls := w.asked("/apis ") - before; polls != 0 {
			w.t.Errorf("%d discoveries in an hour", polls)
		}
		w.undefine(widgets)
		after(goneTime)
		w.expect(widgetEvents("left deleted|b")...)
	})
}

func TestAReleaseIsSilentAndAnotherLeaseKeepsTheKind(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(s *server) {
		s.define(widgets)
		s.objects(widgets.name(), "default", "a", "b")
		s.objects(widgets.name(), "other", "c")
	}, func(w *world) {
		one, two := w.acquire(widget), w.acquire(kinds.Kind{Group: "example.com", Kind: "Widget"})
		some := w.acquire(kinds.Kind{Group: "example.com", Kind: "Widget", Namespace: "default", Selector: "app in (a, c)"})
		after(time.Second)
		w.expect(append(widgetEvents("initial added|a", "initial added|b", "initial added|c"),
			"initial added Widget.example.com:default?app+in+(a,c)|a")...)
		var own log
		must(one.AddWatcher(note(&own, versionOf), informer.WatcherOptions{}))
		after(time.Second)
		if got := own.take(); len(own.events) != 3 || got != nil {
			w.t.Errorf("the watcher of one kind got %q", own.events)
		}
		// An object that both kinds have comes, changes and goes.
		w.objects(widgets.name(), "default", "c")
		after(time.Second)
		w.objects(widgets.name(), "default", "c")
		after(time.Second)
		w.delete(widgets.name(), "default/c")
		after(time.Second)
		w.expect("watch added Widget.example.com|c", "watch updated Widget.example.com|c", "watch deleted Widget.example.com|c",
			"watch added Widget.example.com:default?app+in+(a,c)|c", "watch updated Widget.example.com:default?app+in+(a,c)|c", "watch deleted Widget.example.com:default?app+in+(a,c)|c")
		if len(own.events) != 6 {
			w.t.Errorf("the watcher of one kind got %q", own.events)
		}
		one.Release()
		one.Release()
		if objs, err := two.List("", nil); len(objs) != 3 || err != nil {
			w.t.Errorf("%d objects, %v", len(objs), err)
		}
		two.Release()
		w.objects(widgets.name(), "default", "a")
		after(time.Second)
		w.expect("watch updated Widget.example.com:default?app+in+(a,c)|a")
		if len(own.events) != 6 {
			w.t.Errorf("after its end, the watcher of one kind got %q", own.events[6:])
		}
		some.Release()
		after(time.Second)
		if objs, err := two.List("", nil); objs != nil || !errors.Is(err, informer.ErrNotEngaged) {
			w.t.Errorf("%d objects, %v", len(objs), err)
		}
		if err := two.WaitForSync(w.t.Context()); !errors.Is(err, kinds.ErrReleased) {
			w.t.Errorf("WaitForSync: %v", err)
		}
		if _, err := two.AddWatcher(note(&own, versionOf), informer.WatcherOptions{}); !errors.Is(err, kinds.ErrReleased) {
			w.t.Errorf("AddWatcher: %v", err)
		}
		if h := w.set.Health(); len(h.Kinds) != 0 || len(w.set.Informer().Engaged()) != 0 || w.set.Informer().Health().Objects != 0 {
			w.t.Errorf("%+v", h)
		}
		w.do(func() {
			if w.open != 2 {
				w.t.Errorf("%d watches are open", w.open)
			}
		})
	})
}

func TestWantedChoosesAmongTheOffers(t *testing.T) {
	var got []kinds.Offer
	managed := func(o kinds.Offer) bool {
		got = append(got, o)
		return len(o.Categories) > 0 && o.Categories[0] == "managed"
	}
	run(t, kinds.Options[whole]{Wanted: managed}, func(s *server) { s.define(widgets) }, func(w *world) {
		if h := w.set.Health(); len(h.Kinds) != 0 || h.Ready() != nil {
			w.t.Errorf("%+v", h)
		}
		offers := map[string]kinds.Offer{}
		for _, o := range got {
			offers[o.Kind] = o
		}
		if o := offers["Widget"]; !o.Custom || o.Resource != "widgets" || !o.Namespaced || len(o.Versions) != 1 {
			w.t.Errorf("%+v", o)
		}
		if o := offers["Pod"]; o.Custom || o.Resource != "pods" || !o.Namespaced || o.Categories[0] != "all" {
			w.t.Errorf("%+v", o)
		}
		c := widgets
		c.categories = []any{"managed"}
		w.define(c)
		w.objects(widgets.name(), "default", "a")
		after(time.Second)
		w.expect(widgetEvents("initial added|a")...)
		c.notEstablished = true
		w.define(c)
		after(time.Second)
		w.is("Widget.example.com", kinds.Parked, "installing")
		l := w.acquire(widget)
		w.define(widgets) // it is in no category
		after(time.Second)
		w.is("Widget.example.com", kinds.Reading, "")
		l.Release()
		after(time.Second)
		w.expect()
		if h := w.set.Health(); len(h.Kinds) != 0 {
			w.t.Errorf("%+v", h)
		}
		c.notEstablished = false
		w.define(c)
		after(time.Second)
		w.undefine(c)
		after(goneTime)
		w.expect(widgetEvents("initial added|a", "left deleted|a")...)
		if h := w.set.Health(); len(h.Kinds) != 0 {
			w.t.Errorf("%+v", h)
		}
	})
}
