package object

import (
	"fmt"
	"testing"
)

func TestKeysHasTheAddedKeys(t *testing.T) {
	keys := &Keys{}
	if keys.Has("") {
		t.Error("an empty set has a key")
	}
	for round := range 2 { // the second time, after Has
		for i := range 50_000 {
			keys.Add(fmt.Sprint("default/", 2*(50_000*round+i)))
		}
		for i := range 50_000 {
			n := 2 * (50_000*round + i)
			if !keys.Has(fmt.Sprint("default/", n)) || keys.Has(fmt.Sprint("default/", n+1)) {
				t.Fatalf("wrong about keys %d and %d", n, n+1)
			}
		}
	}
}
