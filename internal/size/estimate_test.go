package size_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/internal/size"
)

// Each object of the first list stands for the others near it, however many they are.
func TestTheFirstObjectsGiveTheMean(t *testing.T) {
	for _, n := range []int{1, 10, 24, 25, 1000, 100_000} {
		var errors float64
		const times = 20
		taken := 0
		for range times {
			var e size.Estimate
			sum := 0
			for i := range n {
				bytes := 1000 + rand.IntN(1000) + 1000*i/n // the later ones are larger
				sum += bytes
				if weight, due := e.Due(false, 0); due {
					taken++
					e.Add(weight, 0, bytes, bytes/2) // the store gets a first list in large parts
				}
			}
			bytes, added := e.Mean()
			if math.Abs(added/bytes-0.5) > 0.01 {
				t.Errorf("%d objects: %.0f of %.0f bytes are new, want half", n, added, bytes)
			}
			errors += bytes/(float64(sum)/float64(n)) - 1
		}
		if off := math.Abs(errors / times); off > 0.03 {
			t.Errorf("%d objects: the mean is off by %.1f %%", n, 100*off)
		}
		if most := min(n, 24+24*int(math.Log2(float64(max(1, n/12))))); taken/times > most {
			t.Errorf("%d objects: %d were taken, want at most %d", n, taken/times, most)
		}
	}
}

func TestLaterObjectsTakeThePlaceOfTheFirst(t *testing.T) {
	var e size.Estimate
	if bytes, added := e.Mean(); bytes != 0 || added != 0 {
		t.Errorf("of no object: %v, %v", bytes, added)
	}
	const n = 10_000
	now := time.Duration(0)
	for i := range n {
		if weight, due := e.Due(false, now); due {
			e.Add(weight, i, 1000, 250)
		}
	}
	taken := 0
	for range 60 * 1000 * 10 { // ten minutes, with a change each millisecond
		now += time.Millisecond
		if weight, due := e.Due(true, now); due {
			taken++
			e.Add(weight, n, 3000, -1)
		}
	}
	if taken > 2000 {
		t.Errorf("%d were taken in ten minutes", taken)
	}
	if bytes, added := e.Mean(); bytes < 2900 || math.Abs(added/bytes-0.25) > 0.001 {
		t.Errorf("the mean is %.0f, of which %.0f are new", bytes, added)
	}
}
