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
		if runtime.GC(); len(full.live()) == 0 {
			break
		}
	}
	if n := len(full.live()); n > 0 || full.used != minSlots*3/4 {
		t.Fatalf("%d parts of %d are not collected", n, full.used)
	}
	part := addressOf(new([64]byte))
	table.put(0, identity{typ: 1, count: 64}, part)
	if table.get(0, identity{typ: 1, count: 64}) != part || full.used != 1 {
		t.Errorf("the stripe has not taken the part: it has %d", full.used)
	}
}

// The identity has the size of the memory behind the pointer.
func TestPartsOfOneHashAreToldApart(t *testing.T) {
	var table weakTable
	one, two := addressOf(new([64]byte)), addressOf(new([128]byte))
	table.put(1, identity{typ: 1, count: 64}, one)
	table.put(1, identity{typ: 1, count: 128}, two)
	table.put(1, identity{typ: 2, count: 64}, two)
	for id, want := range map[identity]address{{1, 64}: one, {1, 128}: two, {2, 64}: two, {1, 65}: nil, {3, 64}: nil} {
		if table.get(1, id) != want {
			t.Errorf("%+v is another part", id)
		}
	}
}
