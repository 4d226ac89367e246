package shards_test

import (
	"testing"
	"testing/synctest"
	"time"
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
