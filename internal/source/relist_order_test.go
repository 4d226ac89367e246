package source_test

import (
	"testing"
	"testing/synctest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// A DeltaFIFO puts a change in the place of an older change of the same object. The new change
// then comes before a list that arrived between the two. It does not if the list has objects, behind which it waits in one entry.
func TestWhatComesAfterAListIsNotTakenForLacking(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		src := informertest.NewSource(object("slow", "1"), object("x", "1"))
		store := informertest.NewStore(nil)
		inf, r := watched(t, src, options{Queue: queue, Store: store})
		hold := make(chan struct{})
		store.Fail(func(op, key string) error {
			if op == "get" && key == "default/slow" {
				<-hold
			}
			return nil
		})
		src.Apply(object("slow", "2"))
		synctest.Wait()
		_, _ = src.Delete(keyOf("x"))
		synctest.Wait()
		_, _ = src.Delete(keyOf("slow"))
		synctest.Wait()
		src.Expire() // the list is empty
		sleepBubble(hour / 60)
		_, _ = src.Create(object("x", "2"))
		synctest.Wait()
		close(hold)
		sleepBubble(hour / 60)
		checkView(t, r, src)
		checkStore(t, inf, src)
	})
}
