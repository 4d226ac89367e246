package kinds_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/kinds"
)

var flunder = kinds.Kind{Group: "wardle.example.com", Kind: "Flunder"}

func serveFlunders(s *server) {
	s.serve(&resource{group: "wardle.example.com", name: "flunders", kind: "Flunder", versions: []string{"v1"}, namespaced: true})
	s.objects("flunders.wardle.example.com", "default", "a")
}

// TestAGroupThatDiscoveryDoesNotShowIsThereWhileItsAPIServiceIs hides a group for longer than any pause between two discoveries.
func TestAGroupThatDiscoveryDoesNotShowIsThereWhileItsAPIServiceIs(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble
	for name, fail := range map[string]func(verb, path string) *metav1.Status{
		"with CRDs": nil,
		"without APIServices at first": func(_, path string) *metav1.Status {
			if strings.HasSuffix(path, "apiservices") && time.Since(start) < 5*time.Minute {
				return failure(503, metav1.StatusReasonServiceUnavailable, "restarting")
			}
			return nil
		},
		"without CRDs": func(verb, path string) *metav1.Status {
			if strings.HasSuffix(path, "apiservices") {
				return nil
			}
			return forbidden(verb, path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, kinds.Options[whole]{}, func(s *server) {
				serveFlunders(s)
				s.fail = fail
			}, func(w *world) {
				w.acquire(flunder)
				after(time.Second)
				w.expect("initial added Flunder.wardle.example.com|a")
				w.do(func() { w.hidden[flunder.Group] = true })
				w.service(flunder.Group, "False")
				after(10 * time.Minute)
				w.is("Flunder.wardle.example.com", kinds.Parked, "")
				w.expect()
				w.do(func() { w.hidden[flunder.Group] = false })
				w.service(flunder.Group, "True")
				after(time.Minute)
				w.is("Flunder.wardle.example.com", kinds.Reading, "")
				// Another API server, which does not know the group yet, answers once.
				w.do(func() { w.hidden[flunder.Group] = true })
				w.service("other.example.com", "True")
				after(10 * time.Second)
				w.is("Flunder.wardle.example.com", kinds.Parked, "does not offer")
				w.do(func() { w.hidden[flunder.Group] = false })
				after(10 * time.Minute)
				w.is("Flunder.wardle.example.com", kinds.Reading, "")
				w.expect()
			})
		})
	}
}

// TestACRDThatWasMissedForLongMayBeCreatedAgainAtOnce waits so long for a CRD that two discoveries do not show its kind.
func TestACRDThatWasMissedForLongMayBeCreatedAgainAtOnce(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(*server) {}, func(w *world) {
		w.acquire(widget)
		for range 2 {
			after(time.Minute)
			w.service("other.example.com", "True")
			after(time.Minute)
			w.service("other.example.com", "False")
		}
		after(10 * time.Minute)
		w.define(widgets)
		w.objects(widgets.name(), "default", "a")
		after(time.Minute)
		w.log.events = nil
		w.undefine(widgets)
		w.define(widgets)
		w.objects(widgets.name(), "default", "b")
		after(time.Minute)
		if n := w.log.count("left"); n != 0 || w.log.count("added") != 1 || w.log.count("deleted") != 1 {
			w.t.Errorf("the events are %q", w.log.events)
		}
	})
}

// TestARemovedKindDoesNotComeBackWithAnOldDiscovery deletes a CRD that the only discovery has shown, and another one much later.
func TestARemovedKindDoesNotComeBackWithAnOldDiscovery(t *testing.T) {
	gadgets, other := widgets, widgets
	gadgets.plural, gadgets.kind = "gadgets", "Gadget"
	other.plural, other.kind = "others", "Other"
	offered := map[string]int{}
	run(t, kinds.Options[whole]{Wanted: func(o kinds.Offer) bool { offered[o.Kind]++; return false }}, func(s *server) {
		s.define(widgets)
		s.define(other)
	}, func(w *world) {
		w.undefine(widgets)
		after(goneTime)
		delete(offered, "Widget")
		after(11 * time.Minute)
		w.define(gadgets)
		after(time.Second)
		w.undefine(gadgets)
		after(goneTime)
		w.acquire(widget)
		w.service("wardle.example.com", "True") // asks for discovery
		after(time.Minute)
		w.is("Widget.example.com", kinds.Waiting, "does not offer")
		if offered["Widget"] != 0 {
			t.Error("a kind was offered after its end")
		}
	})
}

func TestAnAggregatedAPITakesThePlaceOfACRD(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(s *server) {
		s.define(widgets)
		s.objects(widgets.name(), "default", "a")
	}, func(w *world) {
		w.acquire(widget)
		after(time.Second)
		w.undefine(widgets)
		after(goneTime)
		w.expect(widgetEvents("initial added|a", "left deleted|a")...)
		w.serve(&resource{group: "example.com", name: "widgets", kind: "Widget", versions: []string{"v1"}, namespaced: true})
		w.objects(widgets.name(), "default", "b")
		after(time.Minute)
		w.is("Widget.example.com", kinds.Reading, "")
		w.expect(widgetEvents("initial added|b")...)
	})
}

// TestACRDMayHaveTheNameOfAGroup deletes the CRD of wardle in example.com. The group wardle.example.com has nothing to do with it.
func TestACRDMayHaveTheNameOfAGroup(t *testing.T) {
	named := widgets
	named.plural, named.kind = "wardle", "Wardle"
	run(t, kinds.Options[whole]{}, func(s *server) {
		serveFlunders(s)
		s.define(named)
	}, func(w *world) {
		w.acquire(flunder)
		after(time.Second)
		w.undefine(named)
		after(goneTime)
		w.service("other.example.com", "True") // asks for discovery
		after(time.Minute)
		w.is("Flunder.wardle.example.com", kinds.Reading, "")
		w.expect("initial added Flunder.wardle.example.com|a")
	})
}

// TestAKindThatCameAgainInTheFallbackStays gives the right to CRDs back when discovery has shown that another CRD has the place of the one
// that the set knows.
func TestAKindThatCameAgainInTheFallbackStays(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(s *server) {
		s.define(widgets)
		s.objects(widgets.name(), "default", "a")
	}, func(w *world) {
		w.acquire(widget)
		after(time.Second)
		w.do(func() { w.fail = forbidden })
		w.cut(crdsName)
		after(time.Minute)
		w.undefine(widgets)
		again := widgets
		again.scope = "Cluster"
		w.define(again)
		after(time.Minute)
		w.objects(again.name(), "", "b")
		after(time.Second)
		w.log.events = nil // the list after the end of the watch may have brought the delete, or discovery
		w.do(func() { w.fail = nil })
		after(10 * time.Minute)
		w.expect()
		w.is("Widget.example.com", kinds.Reading, "")
		w.undefine(again)
		after(goneTime)
		w.expect(widgetEvents("left deleted|b")...)
	})
}

// TestAConflictOfNamesDoesNotKeepAKind deletes the CRD that has the kind, while another one waits for it.
func TestAConflictOfNamesDoesNotKeepAKind(t *testing.T) {
	rival := widgets
	rival.plural, rival.notEstablished, rival.notAccepted = "a-rival", true, true
	run(t, kinds.Options[whole]{}, func(s *server) {
		s.define(widgets)
		s.define(rival)
		s.objects(widgets.name(), "default", "a")
	}, func(w *world) {
		w.acquire(widget)
		after(time.Second)
		flaps := widgets
		flaps.notEstablished = true
		w.define(flaps)
		after(time.Minute)
		w.is("Widget.example.com", kinds.Parked, "widgets.example.com is not established")
		w.define(widgets)
		after(time.Minute)
		w.expect(widgetEvents("initial added|a")...)
		w.undefine(widgets)
		after(goneTime)
		w.is("Widget.example.com", kinds.Waiting, "a-rival.example.com is not established")
		w.expect(widgetEvents("left deleted|a")...)
		rival.notEstablished, rival.notAccepted = false, false
		w.objects(rival.name(), "default", "b")
		w.define(rival)
		after(time.Second)
		w.expect(widgetEvents("initial added|b")...)
	})
}

// crdsExpire has a watch of CRDs begin with a list.
func crdsExpire(verb, path string) *metav1.Status {
	if verb == "watch" && strings.HasSuffix(path, "definitions") {
		return failure(410, metav1.StatusReasonExpired, "too old")
	}
	return nil
}

func TestACRDWithAnotherUIDIsANewKind(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(s *server) {
		s.define(widgets)
		s.objects(widgets.name(), "default", "a", "b")
	}, func(w *world) {
		w.acquire(widget)
		after(time.Second)
		w.log.events = nil
		w.do(func() {
			w.fail = func(_, path string) *metav1.Status {
				if strings.HasSuffix(path, "definitions") || strings.HasSuffix(path, "widgets") {
					return failure(503, metav1.StatusReasonServiceUnavailable, "restarting")
				}
				return nil
			}
		})
		w.cut(crdsName)
		after(time.Second)
		w.undefine(widgets)
		w.define(widgets)
		w.objects(widgets.name(), "default", "b", "c")
		after(time.Minute)
		w.expect()
		w.do(func() { w.fail = crdsExpire }) // the delete of the CRD is not seen
		after(2 * time.Minute)
		w.is("Widget.example.com", kinds.Reading, "")
		objs, err := w.set.Informer().In("Widget.example.com").List("", nil)
		if len(objs) != 2 || err != nil || objs[0].GetName() == "a" || objs[1].GetName() == "a" {
			w.t.Errorf("the informer has %v (%v)", objs, err)
		}
		for name, want := range map[string][2]int{"a": {0, 1}, "b": {1, 1}, "c": {1, 0}} { // adds and deletes
			got := [2]int{w.log.count("added Widget.example.com|" + name), w.log.count("deleted Widget.example.com|" + name)}
			if got != want {
				w.t.Errorf("%s: %v adds and deletes, want %v: %q", name, got, want, w.log.events)
			}
		}
	})
}

// TestAKindThatRecoversStartsAtOnce lets the pauses of the source grow before the kind is served again.
func TestAKindThatRecoversStartsAtOnce(t *testing.T) {
	for name, ends := range map[string]func(w *world){
		"an edit of the CRD": func(w *world) {
			again := widgets
			again.schema = "mended"
			w.define(again)
		},
		"it is established": func(w *world) { w.define(widgets) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, kinds.Options[whole]{}, func(s *server) { s.define(widgets) }, func(w *world) {
				w.acquire(widget)
				after(time.Second)
				w.do(func() {
					w.fail = widgetsFail("list watch stream", failure(500, metav1.StatusReasonInternalError, "conversion webhook"))
				})
				w.cut(widgets.name())
				if name == "it is established" {
					flaps := widgets
					flaps.notEstablished = true
					w.define(flaps)
				}
				after(30*time.Minute + 3*time.Second)
				w.objects(widgets.name(), "default", "a")
				w.do(func() { w.fail = nil })
				ends(w)
				after(100 * time.Millisecond)
				w.is("Widget.example.com", kinds.Reading, "")
				w.expect(widgetEvents("watch added|a")...)
			})
		})
	}
}

// TestTheFallbackWithoutAKind has discovery lose a kind, but not its group, and show a kind for some time after its CRD is gone.
func TestTheFallbackWithoutAKind(t *testing.T) {
	run(t, kinds.Options[whole]{}, inTheFallback, func(w *world) {
		w.acquire(widget)
		after(time.Second)
		w.expect(widgetEvents("initial added|a")...)
		w.do(func() { // discovery shows the CRD, which is gone
			w.fail = func(verb, path string) *metav1.Status {
				if strings.HasSuffix(path, "/widgets") {
					return failure(404, metav1.StatusReasonNotFound, "page not found")
				}
				return forbidden(verb, path)
			}
		})
		w.cut(widgets.name())
		after(10 * time.Minute)
		w.is("Widget.example.com", kinds.Parked, "not found")
		w.expect()
		w.undefine(widgets)
		after(time.Minute)
		w.is("Widget.example.com", kinds.Waiting, "does not offer")
		w.expect(widgetEvents("left deleted|a")...)
		after(time.Hour)
		w.expect()
	})
}
