package kinds_test

import (
	"testing"
	"time"

	"github.com/customcacheinformer/informer/kinds"
)

func TestAKindIsReadWhileItsCRDIsThere(t *testing.T) {
	run(t, kinds.Options[whole]{}, func(*server) {}, func(w *world) {
		l := w.acquire(widget)
		w.is("Widget.example.com", kinds.Waiting, "does not offer")
		c := widgets
		c.notEstablished = true
		w.define(c)
		w.is("Widget.example.com", kinds.Waiting, "not established: installing")
		w.define(widgets)
		w.objects(widgets.name(), "default", "a", "b")
		if err := l.WaitForSync(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		after(time.Second)
		w.is("Widget.example.com", kinds.Reading, "")
		w.expect("initial added Widget.example.com|a", "initial added Widget.example.com|b")
		w.undefine(widgets)
		after(time.Second)
		w.is("Widget.example.com", kinds.Waiting, "the CRD was deleted")
		w.expect("left deleted Widget.example.com|a", "left deleted Widget.example.com|b")
	})
}
