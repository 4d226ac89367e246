package kinds_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/kinds"
)

// TestTheLossOfTheRightToCRDsChangesNothing takes the right to list CRDs away when the last discovery no longer shows how things are.
func TestTheLossOfTheRightToCRDsChangesNothing(t *testing.T) {
	for name, change := range map[string]func(w *world) (last string){
		"the kind has come since": func(w *world) string {
			for range 2 { // two discoveries do not show the kind, with a pause in between
				after(time.Minute)
				w.service("other.example.com", "True")
				after(time.Minute)
				w.service("other.example.com", "False")
			}
			after(time.Minute)
			w.define(widgets)
			w.objects(widgets.name(), "default", "a")
			return "initial added|a"
		},
		"the scope has changed since": func(w *world) string {
			w.define(widgets)
			after(time.Second)
			w.service("other.example.com", "True")
			after(time.Minute)
			w.undefine(widgets)
			cluster := widgets
			cluster.scope = "Cluster"
			w.define(cluster)
			after(goneTime)
			w.objects(widgets.name(), "", "a")
			return "watch added|a"
		},
		"another version is preferred since": func(w *world) string {
			w.define(widgets)
			after(time.Second)
			w.service("other.example.com", "True")
			after(time.Minute)
			w.objects(widgets.name(), "default", "a")
			after(time.Second)
			both := widgets
			both.versions = []string{"v2", "v1"}
			w.define(both)
			return "relist updated|a in v2"
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, kinds.Options[whole]{}, func(*server) {}, func(w *world) {
				w.acquire(widget)
				last := change(w)
				after(time.Second)
				w.log.events = w.log.events[len(w.log.events)-1:]
				w.expect(widgetEvents(last)...)
				w.do(func() {
					w.fail = func(verb, path string) *metav1.Status {
						if strings.HasPrefix(path, "/api") && strings.Count(path, "/") == 1 {
							return failure(503, metav1.StatusReasonServiceUnavailable, "no discovery")
						}
						return forbidden(verb, path)
					}
				})
				w.cut(crdsName)
				after(10 * time.Minute) // an old discovery must not decide
				w.expect()
				w.do(func() { w.fail = forbidden })
				after(10 * time.Minute)
				if !w.set.Health().Polls {
					w.t.Error("discovery does not take the place of the CRDs")
				}
				w.expect()
				w.is("Widget.example.com", kinds.Reading, "")
			})
		})
	}
}
