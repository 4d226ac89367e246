package shards_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer/shards"
)

// The next holder must know that its caches are as new as those of the last one, also if no event comes.
func TestAHandoverTakesNoLongerWithoutWrites(t *testing.T) {
	for _, divided := range []bool{false, true} {
		t.Run(fmt.Sprintf("divided: %v", divided), func(t *testing.T) {
			var took [2][2]time.Duration // of a join and a leave, without and with writes
			for n, writes := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) { took[n] = handovers(t, divided, writes) })
			}
			t.Logf("without writes: %v, with writes: %v", took[0], took[1])
			for n, quiet := range took[0] {
				if quiet > took[1][n]+100*time.Millisecond {
					t.Errorf("without writes it takes %v, with writes %v", quiet, took[1][n])
				}
			}
		})
	}
}

// handovers returns how long it takes until a replica that joins works on its share, and until it works on
// everything when the other one leaves.
func handovers(t *testing.T, divided, writes bool) (took [2]time.Duration) {
	w := newWorld(t, 0)
	w.divided = divided
	w.writeAll("1")
	serve := func(opts *shards.Options, r *replica) {
		if divided {
			selects(opts, r)
		}
	}
	a := w.start("a", serve)
	w.settled(10 * time.Minute) // the last bookmark is from a while ago
	until := func(b *replica, want int) time.Duration {
		begun := time.Now()
		for n := 0; ; n++ {
			if h := b.set.Health(); h.Owned == want && h.CatchingUp == 0 {
				return time.Since(begun)
			}
			if writes {
				w.write(n%64, fmt.Sprint(n+2))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	b := w.start("b", serve)
	took[0] = until(b, 8)
	w.settled(10 * time.Second)
	a.kill()
	took[1] = until(b, 16)
	w.settled(10 * time.Second)
	return took
}
