package model_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// states has the states of a source or of a store, in their order.
type states struct {
	mu      sync.Mutex
	now     map[types.NamespacedName]string // versions
	numbers map[string][]int                // of each state, in order
	count   int
	at      map[string]string // the state at a version
}

func newStates() *states {
	return &states{now: map[types.NamespacedName]string{}, numbers: map[string][]int{"": {0}}, at: map[string]string{}}
}

// note notes that an object has a version now, "" for none.
func (s *states) note(key types.NamespacedName, has, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now[key] = has; has == "" {
		delete(s.now, key)
	}
	text := textOf(s.now)
	s.count++
	s.numbers[text], s.at[version] = append(s.numbers[text], s.count), text
}

// textOf returns a text that only equal states have.
func textOf(state map[types.NamespacedName]string) string {
	var lines []string
	for key, version := range state {
		lines = append(lines, key.Name+" "+version)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Readers take snapshots while the informer writes. Each snapshot is a state between two events, no reader goes
// back, and with RealFIFO a snapshot is what the source was at its version.
func TestASnapshotIsAStateBetweenTwoEvents(t *testing.T) {
	for name, queue := range testkit.Queues {
		t.Run(name, func(t *testing.T) { takeSnapshots(t, queue) })
	}
}

func takeSnapshots(t *testing.T, queue informer.QueueKind) {
	changes := testkit.LongOrShort(20_000, 3000)
	src, told := newStates(), newStates()
	s := informertest.NewSource[configMap]()
	inf := testkit.NewInformer(t, s, options{Queue: queue})
	reg := testkit.AddWatcher(t, inf, informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
		has := ""
		if e.Type != informer.EventDeleted {
			has = e.New.ResourceVersion
		}
		told.note(e.Key(), has, "")
		return nil
	}), informer.WatcherOptions{MaxBacklog: -1})
	informertest.Run(t, inf)
	end := make(chan struct{})
	var readers sync.WaitGroup
	taken := make([][]*informer.Snapshot[configMap], 3)
	for n := range taken {
		readers.Go(func() {
			for {
				v, err := inf.Snapshot()
				if err != nil {
					t.Error(err)
					return
				}
				if all := taken[n]; len(all) < 2000 {
					taken[n] = append(all, v)
				}
				if channel.Closed(end) {
					return
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	for n := range changes {
		key := keyOf(fmt.Sprint("o", random.IntN(30)))
		if random.IntN(3) == 0 {
			if _, err := s.Delete(key); err == nil {
				src.note(key, "", s.ResourceVersion())
			}
			continue
		}
		obj := s.Apply(object(key.Name, fmt.Sprint(n)))
		src.note(key, obj.ResourceVersion, obj.ResourceVersion)
	}
	testkit.Must(t, errors.Join(inf.WaitForVersion(t.Context(), "", s.ResourceVersion()), reg.CatchUp(t.Context())))
	last, _ := inf.Snapshot()
	close(end)
	readers.Wait()
	for n := range taken {
		checkSnapshots(t, append(taken[n], last), src, told)
	}
}

func checkSnapshots(t *testing.T, all []*informer.Snapshot[configMap], src, told *states) {
	t.Helper()
	before, exact := 0, 0
	for _, v := range all {
		state := map[types.NamespacedName]string{}
		for key, obj := range v.All() {
			state[key] = obj.ResourceVersion
		}
		text := textOf(state)
		n := slices.IndexFunc(told.numbers[text], func(n int) bool { return n >= before })
		if n < 0 {
			t.Fatalf("a snapshot is no state of the store, or older than the one before:\n%s", text)
		}
		before = told.numbers[text][n]
		if version := v.Version(); version != "" {
			exact++
			if want, known := src.at[version]; known && want != text {
				t.Fatalf("at version %s (-source +snapshot):\n%s", version, cmp.Diff(strings.Split(want, "\n"), strings.Split(text, "\n")))
			}
		}
	}
	t.Logf("%d snapshots, %d at a version", len(all), exact)
}

// Two informers of one source, of which only one is written between two calls of SnapshotOf.
func TestSnapshotsOfSeveralInformersAreOfOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := informertest.NewSource(object("a", "1"))
		var informers []*ci
		for _, name := range []string{"one", "two"} {
			inf := testkit.NewInformer(t, s, options{Name: name, Queue: informer.QueueRealFIFO})
			informertest.Run(t, inf)
			informers = append(informers, inf)
		}
		var one, again, two *informer.Snapshot[configMap]
		testkit.Must(t, informer.SnapshotOf(informers[0].SnapshotTo(&one), informers[1].SnapshotTo(&two), informers[0].SnapshotTo(&again)))
		s.Apply(object("a", "2"))
		s.Apply(object("b", "1"))
		synctest.Wait()
		for name, v := range map[string]*informer.Snapshot[configMap]{"one": one, "two": two, "one, again": again} {
			a, exists, err := v.Get(keyOf("a"))
			all, listed := v.List("default", nil)
			found, indexed := v.ByIndex("namespace", "default")
			if err := errors.Join(err, listed, indexed); err != nil || !exists || a.Data["value"] != "1" || len(all) != 1 || len(found) != 1 || all[0] != a || found[0] != a {
				t.Errorf("%s: Get %v, List %d, ByIndex %d, %v", name, a, len(all), len(found), err)
			}
			if v.Version() != a.ResourceVersion || !slices.Equal(v.Versions(), []string{v.Version()}) {
				t.Errorf("%s: at version %q, want %q", name, v.Version(), a.ResourceVersion)
			}
			_, err = v.ByIndex("none", "")
			testkit.ErrorContains(t, err, `"none"`)
		}
		plain := testkit.NewInformer(t, s, options{Name: "plain", Store: testkit.NewPlainStore()})
		one = nil
		if err := informer.SnapshotOf(informers[0].SnapshotTo(&one), plain.SnapshotTo(&two)); err == nil || one != nil || !strings.HasPrefix(err.Error(), "informer plain: SnapshotOf: only the informer's own store") {
			t.Errorf("with a store that has no snapshots: %v, %v", one, err)
		}
		testkit.ErrorContains(t, informer.SnapshotOf(informers[0].SnapshotTo(nil)), "SnapshotTo has nil")
		testkit.ErrorContains(t, informer.SnapshotOf(informer.SnapshotRequest{}), "not made by SnapshotTo")
		testkit.NoError(t, informer.SnapshotOf())
	})
}
