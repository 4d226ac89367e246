package source

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/framing"
)

// The events of a watch keep the order of its body, whichever of them are taken off it and whenever they are
// ready.
func TestTakenEventsKeepTheirPlace(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		taken, rest := make(chan watch.Event, 100), make(chan watch.Event, 100)
		m := &merged{taken: taken, rest: rest, count: &atomic.Int64{}}
		var want, got []string
		n, closed, wantTaken := 1+rnd.IntN(12), false, int64(0)
		for !closed {
			for range rnd.IntN(5) { // the body brings something
				if len(want) == n {
					closed = true
					close(rest)
					break
				}
				version := strconv.Itoa(len(want))
				want = append(want, version)
				e := watch.Event{Type: watch.Modified, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}}
				if rnd.IntN(2) == 0 {
					wantTaken++
					taken <- e
					continue
				}
				taken <- watch.Event{Type: framing.Mark}
				if len(want) == n && rnd.IntN(4) == 0 { // the watch ends at its Mark
					want = want[:n-1]
					closed = true
					close(rest)
					break
				}
				rest <- e
			}
			for closed || rnd.IntN(3) > 0 { // the forwarder takes what is there
				if m.next.Type == framing.Mark && !m.held && rnd.IntN(2) == 0 { // its select, which chooses any that is ready
					select {
					case e := <-m.ahead():
						m.take(e)
					case e, open := <-m.rest:
						m.hold(e, open)
					default:
					}
				}
				e, open, ok := m.poll()
				if !ok || !open {
					if closed && ok {
						break
					}
					if !closed {
						break
					}
					continue
				}
				got = append(got, e.Object.(*metav1.PartialObjectMetadata).ResourceVersion)
			}
		}
		if !slices.Equal(got, want) || m.count.Load() != wantTaken {
			t.Fatalf("seed %d: events %v, want %v; %d taken, want %d", seed, got, want, m.count.Load(), wantTaken)
		}
	}
}
