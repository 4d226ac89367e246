package source_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// A stream of the first state may bring the delete of an object that cannot be decoded.
func TestAnObjectThatCannotBeDecodedIsDeletedInAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		end := `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"1005","annotations":{"k8s.io/initial-events-end":"true"}}}}`
		w.Odd(func(req *http.Request) testkit.Answer {
			if !testkit.IsStream(req) {
				return nil
			}
			good := strings.Replace(badObject, `"data":7`, `"data":{"value":"1"}`, 1)
			return testkit.Streams(`{"type":"ADDED","object":`+good+`}`, `{"type":"DELETED","object":`+badObject+`}`, end)
		})
		o := observe(t, typedClient(w), anyOptions{WatchList: informer.WatchListOn, Intake: informer.IntakeEarly})
		sleepBubble(time.Minute)
		if told, _ := o.take(); len(told) != 0 || o.Health().Objects != 0 || o.Health().Ready() != nil {
			t.Errorf("reported %q; %d objects; %v", told, o.Health().Objects, o.Health().Ready())
		}
	})
}
