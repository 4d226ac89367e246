package share

import (
	"runtime"
	"testing"
)

func TestAStripeWhosePartsAreAllCollectedTakesAnother(t *testing.T) {
	var table weakTable
	for hash := range uint64(minSlots * 3 / 4) { // the stripe is full
		table.put(hash, identity{typ: 1, count: 64}, addressOf(new([64]byte)))
	}
	full := table.stripe(0)
	for range 100 {
		if runtime.GC(); full.live() == 0 {
			break
		}
	}
	if n := full.live(); n > 0 || full.used != minSlots*3/4 {
		t.Fatalf("%d parts of %d are not collected", n, full.used)
	}
	part := addressOf(new([64]byte))
	table.put(0, identity{typ: 1, count: 64}, part)
	if table.get(0, identity{typ: 1, count: 64}) != part || full.used != 1 {
		t.Errorf("the stripe has not taken the part: it has %d", full.used)
	}
}
