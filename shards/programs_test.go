package shards_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

func controls(first string, more ...string) func(*shards.Options, *replica) {
	return func(_ *shards.Options, r *replica) { r.named, r.more = first, more }
}

// about returns how many errors of a replica contain a text.
func (r *replica) about(text string) (n int) {
	for _, err := range r.took() {
		if strings.Contains(err.Error(), text) {
			n++
		}
	}
	return n
}

func TestAnotherProgramDoesNotJoin(t *testing.T) {
	for together := range 2 {
		testkit.InBubble(t, fmt.Sprint(together), func(t *testing.T) {
			w := newWorld(t, 64)
			all := []*replica{w.start("a", controls("certificates"))}
			time.Sleep(time.Duration(together) * time.Minute)
			all = append(all, w.start("b", controls("backups")))
			time.Sleep(time.Hour)
			if all[0].owned() == 0 {
				all[0], all[1] = all[1], all[0]
			}
			works, waits := all[0], all[1]
			if works.owned() != 16 || waits.owned() != 0 {
				t.Fatalf("one program has %d buckets, the other %d", works.owned(), waits.owned())
			}
			const want = "another program has a set of this name in this namespace: the replica "
			err := waits.group.Ready()
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "(keys: {Namespace string, Name string})") {
				t.Errorf("Ready of the program that waits: %v", err)
			}
			if n := waits.about(want); n != 1 {
				t.Errorf("the program that waits has reported it %d times: %v", n, waits.took())
			}
			if n := works.about(want); n > 1 || n == 1 && together > 0 {
				t.Errorf("the program that works has reported %v", works.took())
			}
			works.stop()
			w.settled(time.Minute)
			if err := waits.group.Ready(); err != nil || waits.owned() != 16 {
				t.Errorf("after the end of the other program: %d buckets, %v", waits.owned(), err)
			}
		})
	}
}

// The new version of a program has one more controller.
func TestARollingUpdateShowsWhichKeysWait(t *testing.T) {
	inWorld(t, 64, func(t *testing.T, w *world) {
		old := []*replica{w.start("old-0"), w.start("old-1")}
		time.Sleep(time.Minute)
		young := []*replica{w.start("new-0", controls("objects", "added"))}
		time.Sleep(10 * time.Minute)
		h := young[0].set.Health()
		if h.Unserved != 16-young[0].owned() || h.UnservedFor < 9*time.Minute || fmt.Sprint(h.Lacking) != "[added]" {
			t.Errorf("during the update: %+v", h)
		}
		if n := w.waiting("added"); n == 0 || n == 64 {
			t.Errorf("%d of 64 keys wait", n)
		}
		if n := young[0].about("buckets are with replicas that do not have added"); n != 1 {
			t.Errorf("the new replica has reported it %d times: %v", n, young[0].took())
		}
		for n, r := range old {
			if h := r.set.Health(); h.Unserved != 0 || len(r.took()) > 0 {
				t.Errorf("the old replica %s: %+v, %v", r.name, h, r.took())
			}
			young = append(young, w.start(fmt.Sprint("new-", n+1), controls("objects", "added")))
			time.Sleep(10 * time.Second)
			r.stop()
		}
		w.settled(time.Minute)
		w.balanced(young...)
		if n := w.waiting("added"); n > 0 {
			t.Errorf("%d keys wait after the update", n)
		}
		for _, r := range young {
			if h := r.set.Health(); h.Unserved != 0 || h.UnservedFor != 0 || h.Lacking != nil {
				t.Errorf("after the update: %+v", h)
			}
		}
	})
}

// A replica that is cut off from the Leases knows nothing of other replicas.
func TestAReplicaWithoutASessionShowsNoKeysThatWait(t *testing.T) {
	// The young replica counts buckets of the old one for the last time if its own session ends first.
	// Which one ends first depends on the moment at which the link is cut.
	for phase := range 10 {
		inWorld(t, 64, func(t *testing.T, w *world) {
			w.start("old")
			young := w.start("young", controls("objects", "added"))
			time.Sleep(time.Minute + time.Duration(phase)*time.Second/2)
			if h := young.set.Health(); h.Unserved == 0 {
				t.Fatalf("%+v", h)
			}
			young.link.cut()
			time.Sleep(10 * time.Minute)
			if h := young.set.Health(); h.Unserved > 0 || h.UnservedFor > 0 || h.SourceError == nil {
				t.Errorf("%+v", h)
			}
			young.link.heal()
			time.Sleep(time.Minute)
		})
	}
}
