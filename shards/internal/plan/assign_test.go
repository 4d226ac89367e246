package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// count returns how many buckets each session has.
func count(holders []string) map[string]int {
	n := map[string]int{}
	for _, h := range holders {
		n[h]++
	}
	return n
}

func TestTheSharesAreEqualAndNoBucketMovesThatNeedNot(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, buckets := range []int{1, 2, 16, 64, 1024} {
		holders := make([]string, buckets)
		sessions := []string{"s0"}
		for step := range 200 {
			before := slices.Clone(sessions)
			if random.IntN(2) == 0 && len(sessions) < 20 {
				sessions = append(sessions, fmt.Sprint("s", step+1))
			} else if len(sessions) > 1 {
				sessions = slices.Delete(sessions, 0, 1)
			}
			random.Shuffle(len(sessions), func(i, j int) { sessions[i], sessions[j] = sessions[j], sessions[i] })
			wanted := Assign(sessions, holders, nil)
			least, most := buckets/len(sessions), (buckets+len(sessions)-1)/len(sessions)
			has := count(wanted)
			for _, id := range sessions {
				if has[id] < least || has[id] > most {
					t.Fatalf("%d buckets, %d sessions: %s has %d", buckets, len(sessions), id, has[id])
				}
				delete(has, id)
			}
			if len(has) > 0 {
				t.Fatalf("buckets are given to %v", has)
			}
			moved, free := 0, 0
			for b := range wanted {
				if !slices.Contains(sessions, holders[b]) {
					free++
				} else if holders[b] != wanted[b] {
					moved++
				}
			}
			// A session that joins gets its share, and no other bucket moves. If one leaves, only its
			// own buckets move.
			if joined := max(0, len(sessions)-len(before)); moved > joined*most {
				t.Fatalf("%d buckets, %d to %d sessions: %d buckets move although their holders live", buckets, len(before), len(sessions), moved)
			}
			holders = wanted
		}
	}
}

func TestAllReplicasComeToTheSamePlan(t *testing.T) {
	sessions, holders := []string{"a", "b", "c"}, []string{"a", "", "gone", "a", "a", "b", "", "a"}
	want := Assign(sessions, holders, nil)
	slices.Reverse(sessions)
	if got := Assign(sessions, holders, nil); !slices.Equal(got, want) {
		t.Errorf("%v, and in another order %v", want, got)
	}
	if got := Assign(nil, holders, nil); !slices.Equal(got, make([]string, len(holders))) {
		t.Errorf("without sessions: %v", got)
	}
	// The buckets of a session that ended go to all others.
	free := make([]string, 900)
	if has := count(Assign([]string{"a", "b", "c"}, free, nil)); has["a"] != 300 || has["b"] != 300 || has["c"] != 300 {
		t.Errorf("free buckets: %v", has)
	}
}

func TestKeysAreSpreadOverTheBuckets(t *testing.T) {
	for _, kind := range []string{"default/object-%d", "ns%d/shop", "tenant-%03d/x"} {
		n := make([]int, 64)
		for i := range 64 * 100 {
			n[Bucket(fmt.Sprintf(kind, i), 64)]++
		}
		if slices.Min(n) < 50 || slices.Max(n) > 150 {
			t.Errorf("%s: from %d to %d of 6400 keys are in one of 64 buckets", kind, slices.Min(n), slices.Max(n))
		}
	}
	// Other replicas may run another version of the program, so the bucket must never change.
	if b := Bucket("default/shop", 64); b != 60 {
		t.Errorf("the bucket of default/shop is %d", b)
	}
}
