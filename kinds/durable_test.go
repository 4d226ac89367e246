package kinds_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/kinds"
)

// TestARestartOverADurable stops a program, changes the server, and starts it again over the same objects.
func TestARestartOverADurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := informertest.NewDurable(), newServer()
		other := widgets
		other.plural, other.kind = "others", "Other"
		s.define(widgets)
		s.define(other)
		serveFlunders(s)
		for _, id := range []string{widgets.name(), other.name(), "pods."} {
			s.objects(id, "default", "a", "b")
		}
		all := []kinds.Kind{widget, flunder, {Group: "example.com", Kind: "Other"}, {Kind: "Pod"}}
		start := func(wanted ...kinds.Kind) (w *world, stop func()) {
			w = &world{server: s, t: t}
			silent := func(context.Context, error) {}
			w.set = must(kinds.New(clientsOf(s), kinds.Options[whole]{ErrorHandler: silent, Informer: informer.Options[whole]{Durable: store, ErrorHandler: silent}}))
			must(w.set.Informer().AddWatcher(note(&w.log, versionOf), informer.WatcherOptions{}))
			for _, k := range wanted {
				w.acquire(k)
			}
			begun, stopObjects := time.Now(), informertest.Run(t, w.set.Informer())
			stopSet := informertest.Run(t, w.set)
			if took := time.Since(begun); len(wanted) == 1 && took > 10*time.Second { // what the store has, and nothing wants, is not waited for
				t.Errorf("the start has taken %v", took)
			}
			after(2 * time.Minute)
			return w, func() { stopSet(); stopObjects(); store = store.Reopen() }
		}
		w, stop := start(all...)
		w.log.events = nil
		stop()

		s.undefine(widgets)                            // is gone
		s.do(func() { s.stale[flunder.Group] = true }) // cannot be reached, as the next ones
		s.do(func() {
			s.fail = func(_, path string) *metav1.Status {
				if strings.HasSuffix(path, "/others") || strings.HasSuffix(path, "/flunders") {
					return failure(503, metav1.StatusReasonServiceUnavailable, "down")
				}
				return nil
			}
		})
		s.delete("pods.", "default/b")
		state := widgetEvents("initial added|a", "initial added|b")
		state = append(state, "initial added Other.example.com|a", "initial added Other.example.com|b", "initial added Flunder.wardle.example.com|a",
			"initial added Pod|a", "initial added Pod|b", "initial deleted Pod|b")
		w, stop = start(all...)
		w.expect(append(state, widgetEvents("left deleted|a", "left deleted|b")...)...)
		w.is("Widget.example.com", kinds.Waiting, "does not offer")
		w.is("Flunder.wardle.example.com", kinds.Parked, "discovery of group")
		after(10 * time.Minute)
		w.expect()
		stop()

		w, stop = start(all...) // the deletes do not come again
		w.expect("initial added Other.example.com|a", "initial added Other.example.com|b", "initial added Flunder.wardle.example.com|a", "initial added Pod|a")
		s.do(func() { s.stale[flunder.Group], s.fail = false, nil })
		s.service(flunder.Group, "True")
		after(10 * time.Minute)
		w.expect()
		w.is("Flunder.wardle.example.com", kinds.Reading, "")
		stop()
		_, stop = start(kinds.Kind{Kind: "Pod"})
		stop()
	})
}
