package shards

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/shards/internal/plan"
)

// A list that was under way when the replica got a bucket lacks the objects of the bucket.
func TestAnEarlierPartDoesNotCountForThePresentOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ranges atomic.Pointer[plan.Ranges]
		ranges.Store(plan.Cut(nil, 2))
		src := &source{total: 2, ranges: &ranges, moved: make(chan struct{})}
		first := src.Part()
		src.want(sharding.Buckets{1: {}})
		time.Sleep(gather)
		synctest.Wait()
		select {
		case <-first.Changed:
		default:
			t.Fatal("the first part has not ended")
		}
		second := src.Part()
		first.Applied()
		if src.applied.Has(1) {
			t.Error("the list of the first part counts for the second one")
		}
		second.Applied()
		if !src.applied.Has(1) {
			t.Error("the list of the second part does not count")
		}
	})
}
