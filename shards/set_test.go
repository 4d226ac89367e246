package shards_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer/shards"
)

func TestReplicasShareTheBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100)
		a := w.start("a")
		w.settled(time.Second)
		w.balanced(a)
		b, c := w.start("b"), w.start("c")
		w.settled(2 * time.Second)
		w.balanced(a, b, c)
		for n := range 100 {
			w.write(n, "2")
		}
		w.settled(time.Second)
		a.stop()
		w.settled(time.Second)
		w.balanced(b, c)
		for n := range 100 {
			w.write(n, "3")
		}
		w.settled(time.Second)
		b.stop()
		c.stop()
		if left := w.leases.Objects(); len(left) != 16 {
			t.Errorf("%d Leases are left, want those of the 16 buckets", len(left))
		}
		for _, r := range []*replica{a, b, c} {
			if errs := r.took(); len(errs) > 0 {
				t.Errorf("%s reports %v", r.name, errs)
			}
		}
	})
}

func TestAReplicaThatDiesIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100)
		a, b := w.start("a"), w.start("b")
		w.settled(2 * time.Second)
		w.balanced(a, b)
		a.crash()
		for n := range 100 {
			w.write(n, "2")
		}
		w.settled(16 * time.Second)
		w.balanced(b)
		b.stop()
	})
}

// Answers to requests and events of the Leases come in any order.
func TestReplicasThatStartTogetherShareTheBuckets(t *testing.T) {
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 32)
			a, b := w.start("a"), w.start("b")
			w.settled(10 * time.Second)
			w.balanced(a, b)
			a.stop()
			b.stop()
		})
	}
}

// The API server has given a bucket to a replica that does not know it, because the answer was lost. Others
// wait until the replica lets go of the bucket, if it should not have it.
func TestABucketThatAReplicaDoesNotKnowToHaveIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100)
		a := w.start("a")
		w.settled(10 * time.Second)
		b := w.start("b", func(_ *shards.Options, r *replica) { r.link.loses.Store(true) })
		time.Sleep(100 * time.Millisecond)
		c := w.start("c")
		time.Sleep(100 * time.Millisecond)
		b.link.loses.Store(false)
		w.settled(time.Minute)
		w.balanced(a, b, c)
		for _, r := range []*replica{a, b, c} {
			r.stop()
		}
	})
}
