package enqueue

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A fifo is compared with a slice, which is also a fifo, through bursts and through times in
// which it is nearly empty.
func TestAFifoHandsOutItsKeysInTheirOrder(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		f, model, next := &fifo[int]{}, []int(nil), 0
		for range 20_000 {
			pushes := 40 + 20*random.IntN(2) // of 100: it shrinks, or grows
			if random.IntN(100) < pushes || len(model) == 0 {
				f.Push(next)
				model = append(model, next)
				next++
			} else if got := f.Pop(); got != model[0] {
				t.Fatalf("seed %d: got key %d, want %d", seed, got, model[0])
			} else {
				model = slices.Delete(model, 0, 1)
			}
			if n, _ := f.oldest(); n != len(model) || f.Len() != n {
				t.Fatalf("seed %d: it has %d keys, want %d", seed, n, len(model))
			}
		}
	}
}

func TestANeverEmptyFifoGivesBackTheMemoryOfABurst(t *testing.T) {
	f := &fifo[int]{}
	for n := range 1_000_000 {
		f.Push(n)
	}
	for range 999_999 {
		f.Pop()
	}
	if cap(f.keys) > 4*fifoRoom || cap(f.at) > 4*fifoRoom {
		t.Errorf("with one key left it has room for %d keys and %d times, want at most %d", cap(f.keys), cap(f.at), 4*fifoRoom)
	}
	for range 10 * fifoRoom { // one goes in when one comes out
		f.Push(0)
		f.Pop()
	}
	if cap(f.keys) > 4*fifoRoom {
		t.Errorf("it has room for %d keys, want at most %d", cap(f.keys), 4*fifoRoom)
	}
}

func TestTheOldestKeyOfAFifoHasItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fifo[string]{}
		f.Push("a")
		time.Sleep(time.Minute)
		f.Push("b")
		time.Sleep(time.Second)
		for _, want := range []time.Duration{61 * time.Second, time.Second} {
			if _, age := f.oldest(); age != want {
				t.Errorf("the oldest key is %v old, want %v", age, want)
			}
			f.Pop()
		}
		if n, age := f.oldest(); n != 0 || age != 0 {
			t.Errorf("an empty fifo has %d keys, the oldest %v old", n, age)
		}
	})
}
