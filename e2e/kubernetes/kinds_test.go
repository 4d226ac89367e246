package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/kinds"
)

// TestAnAggregatedAPIWhoseServerDies reads a kind with a CRD, and one whose server dies three times. Discovery fails as a whole,
// for the group only, and in the format of one document. No event may come twice. In the end the APIService is deleted.
func TestAnAggregatedAPIWhoseServerDies(t *testing.T) {
	a := newAggregation(t)
	a.aggregate()
	a.apply(a.crds, "nears.near.example.com", nearCRD)
	a.writes("begin", "changed", "deleted-0")
	a.told("added near", "added changed", "added deleted-0")
	a.is(kinds.Reading, "")

	nowhere := a.Config()
	nowhere.Host = "https://127.0.0.1:1"
	whole, groups, document := a.discoverer(nowhere, false), a.discoverer(a.Config(), true), a.discoverer(a.Config(), false)
	a.discovery.Store(whole)
	for n, last := range []struct {
		client *discovery.DiscoveryClient // that the set asks at last
		fails  string
	}{{whole, nowhere.Host}, {groups, "far.example.com"}, {document, "stale GroupVersion discovery: far.example.com"}} {
		death, begun := fmt.Sprint("death-", n), time.Now()
		a.line.Refuse()
		a.is(kinds.Parked, "") // because its own requests fail
		a.Logf("%s: parked after %v: %s", death, time.Since(begun), a.far.Health().Reason)
		a.is(kinds.Parked, "the APIService v1.far.example.com is not available: ")
		a.Logf("%s: the aggregator knows after %v: %s", death, time.Since(begun), a.far.Health().Reason)
		// The document may be that of before for a while. Discovery that fails is asked again.
		a.await("discovery fails", func() bool {
			_, _, err := last.client.ServerGroupsAndResources()
			return err != nil && strings.Contains(err.Error(), last.fails)
		})
		a.discovery.Store(last.client)
		a.await("the set knows", func() bool { return strings.Contains(a.set.Health().DiscoveryError, last.fails) })
		a.Logf("%s: discovery after %v: %s", death, time.Since(begun), a.set.Health().DiscoveryError)
		a.writes(death, "changed", fmt.Sprint("added-", n))
		a.ok(a.fars.Delete(a.ctx, fmt.Sprint("deleted-", n), metav1.DeleteOptions{}))
		a.told("updated near")
		a.is(kinds.Parked, "the APIService v1.far.example.com is not available: ")
		a.told() // nothing else
		if objects, err := a.far.List("", nil); len(objects) != 2+n || err != nil {
			t.Errorf("%s: the kind that is parked has %d objects, %v", death, len(objects), err)
		}

		begun = time.Now()
		a.ok(a.line.Allow())
		a.is(kinds.Reading, "")
		a.told("updated changed", fmt.Sprint("added added-", n), fmt.Sprint("deleted deleted-", n))
		a.Logf("%s: over after %v", death, time.Since(begun))
		a.writes("after "+death, "changed", fmt.Sprint("deleted-", n+1))
		a.told("updated near", "updated changed", fmt.Sprint("added deleted-", n+1))
	}
	a.told()

	before := len(a.events.Events())
	a.ok(a.services.Delete(a.ctx, "v1.far.example.com", metav1.DeleteOptions{}))
	a.told("deleted changed", "deleted added-0", "deleted added-1", "deleted added-2", "deleted deleted-3")
	for _, e := range a.events.Events()[before:] {
		if e.Origin != informer.OriginLeft {
			t.Errorf("%v", e)
		}
	}
	a.is(kinds.Waiting, "")
	a.writes("end")
	a.told("updated near")
	a.told()
}

// writes creates or changes the object of the kind Near, and some of the kind Far.
func (a *aggregation) writes(round string, fars ...string) {
	a.Helper()
	const object = `{apiVersion: %s.example.com/v1, kind: %s, metadata: {name: %s, annotations: {round: %s}}}`
	a.apply(a.nears, "near", fmt.Sprintf(object, "near", "Near", "near", round))
	for _, name := range fars {
		a.apply(a.fars, name, fmt.Sprintf(object, "far", "Far", name, round))
	}
}

// told waits for these events, and no others may come before them. Without any, no event may arrive.
func (a *aggregation) told(want ...string) {
	a.Helper()
	for n, event := range want {
		verb, name, _ := strings.Cut(event, " ")
		kind := "Far.far.example.com"
		if name == "near" {
			kind = "Near.near.example.com"
		}
		want[n] = verb + " " + kind + "|" + a.namespace + "/" + name
	}
	a.events.Expect(a.T, want...)
}

// is waits until the kind Far is in a state for a reason that begins so.
func (a *aggregation) is(state kinds.State, reason string) {
	a.Helper()
	a.await(fmt.Sprintf("the kind Far is %s, %q", state, reason), func() bool {
		h := a.far.Health()
		return h.State == state && strings.HasPrefix(h.Reason, reason)
	})
}
