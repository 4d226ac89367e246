package index

import (
	"slices"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// A write during a listing is newer than the listing, whether or not the listing has it.
func TestAnOverlayBelievesAWriteRatherThanAListing(t *testing.T) {
	o := newOverlay(cache.Indexers{"value": nil})
	o.put("changed", values{"value": {"new"}})
	o.remove("deleted")
	if _, complete := o.keys("value", "new"); complete {
		t.Error("complete before the listing is taken in")
	}
	for _, key := range []string{"changed", "deleted", "kept"} {
		o.fill(key, values{"value": {"listed"}})
	}
	o.complete()
	o.put("later", values{"value": {"new"}})
	for value, want := range map[string][]string{"new": {"changed", "later"}, "listed": {"kept"}} {
		keys, complete := o.keys("value", value)
		slices.Sort(keys)
		if !slices.Equal(keys, want) || !complete {
			t.Errorf("with %q: %v, %t, want %v", value, keys, complete, want)
		}
	}
	if o.written != nil {
		t.Error("it still remembers what was written")
	}
}
