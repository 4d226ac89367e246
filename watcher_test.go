package informer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

func TestSelectTurnsEnteringAndLeavingIntoAddAndDelete(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("in", "yes"), object("out", "no"))
		inf := newInformer(t, src, options{Queue: queue})
		var r recorder
		addWatcher(t, inf, informer.Select(&r, func(obj configMap) bool { return obj.Labels["value"] != "no" }), informer.WatcherOptions{})
		informertest.Run(t, inf)
		r.Expect(t, "added default/in")
		src.Apply(object("out", "yes"))
		r.Expect(t, "added default/out")
		src.Apply(object("out", "still"))
		r.Expect(t, "updated default/out")
		src.Apply(object("out", "no"))
		r.Expect(t, "deleted default/out")
		if e := r.Events()[3]; e.Old.Data["value"] != "still" {
			t.Errorf("leaving was told with an Old of %s", e.Old.Data["value"])
		}
		unselected := object("out", "no")
		unselected.Data["value"] = "changed"
		src.Apply(unselected)
		_, _ = src.Delete(keyOf("out"))
		_, _ = src.Delete(keyOf("in"))
		r.Expect(t, "deleted default/in")
		r.ExpectNone(t)
	})
}

func TestSelectPassesADeleteOfWhichOnlyTheKeyIsKnown(t *testing.T) {
	var r recorder
	no := informer.Select(&r, func(configMap) bool { return false })
	known := object("a", "1")
	known.ResourceVersion = "5"
	_ = no.Delete(t.Context(), event{Type: informer.EventDeleted, Old: known, FinalStateUnknown: true})
	_ = no.Delete(t.Context(), event{Type: informer.EventDeleted, Old: object("b", ""), FinalStateUnknown: true})
	if got := r.Events(); len(got) != 1 || got[0].Key() != keyOf("b") {
		t.Errorf("told %v", got)
	}
}

func TestWatcherFuncsIgnoresWhatIsNil(t *testing.T) {
	var calls []informer.EventType
	f := func(_ context.Context, e event) error {
		calls = append(calls, e.Type)
		return errors.New("returned")
	}
	added := event{Type: informer.EventAdded, New: object("a", "1")}
	updated := event{Type: informer.EventUpdated, Old: added.New, New: object("a", "2")}
	deleted := event{Type: informer.EventDeleted, Old: updated.New}
	for _, tc := range []struct {
		w    informer.WatcherFuncs[configMap]
		want informer.EventType
	}{
		{informer.WatcherFuncs[configMap]{}, 0},
		{informer.WatcherFuncs[configMap]{AddFunc: f}, informer.EventAdded},
		{informer.WatcherFuncs[configMap]{UpdateFunc: f}, informer.EventUpdated},
		{informer.WatcherFuncs[configMap]{DeleteFunc: f}, informer.EventDeleted},
	} {
		calls = nil
		errs := []error{tc.w.Add(t.Context(), added), tc.w.Update(t.Context(), updated), tc.w.Delete(t.Context(), deleted)}
		for i, err := range errs {
			if called := informer.EventType(i+1) == tc.want; called != (err != nil) {
				t.Errorf("with a function for %v: call %d returned %v", tc.want, i, err)
			}
		}
		if tc.want != 0 && (len(calls) != 1 || calls[0] != tc.want) {
			t.Errorf("with a function for %v: called %v", tc.want, calls)
		}
	}
}

func TestAnEventKnowsItsObjectAndKey(t *testing.T) {
	a, b := object("a", "1"), object("a", "2")
	for _, tc := range []struct {
		e    event
		want configMap
		says string
	}{
		{event{Type: informer.EventAdded, New: a}, a, "added"},
		{event{Type: informer.EventUpdated, Old: a, New: b}, b, "updated"},
		{event{Type: informer.EventDeleted, Old: b}, b, "deleted"},
	} {
		if tc.e.Object() != tc.want || tc.e.Key() != keyOf("a") || tc.e.Type.String() != tc.says {
			t.Errorf("%v %v is of %v", tc.e.Type, tc.e.Key(), tc.e.Object())
		}
	}
	if got := informer.EventType(9).String() + informer.Origin(9).String(); got != "EventType(9)Origin(9)" {
		t.Error(got)
	}
}
