package source_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// lister is a source whose lists take a time. It counts those that are under way.
type lister struct {
	*fakeSource
	takes     time.Duration
	now, most *atomic.Int64
}

func (l lister) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	now := l.now.Add(1)
	defer l.now.Add(-1)
	for most := l.most.Load(); now > most && !l.most.CompareAndSwap(most, now); most = l.most.Load() {
	}
	sleepUntil(ctx, l.takes)
	return l.fakeSource.ListWithContext(ctx, opts)
}

// inNamespace is a client for one namespace whose lists take as long.
type inNamespace struct {
	informer.UntypedClient[*metav1.List]
	lister lister
}

func (c inNamespace) List(ctx context.Context, opts metav1.ListOptions) (*metav1.List, error) {
	_, _ = c.lister.ListWithContext(ctx, opts)
	return c.UntypedClient.List(ctx, opts)
}

func newLister(most *atomic.Int64) func() lister {
	now := &atomic.Int64{}
	return func() lister { return lister{informertest.NewSource(object("a", "1")), time.Second, now, most} }
}

func TestAGroupListsFourAtATime(t *testing.T) {
	for name, tc := range map[string]struct {
		lists        *informer.ListLimit // of the group
		members      int                 // before Run
		later, alone int                 // added while the group runs; with Options.Lists
		guests       int
		of           informer.ClientGo
		namespaces   int // of one more member
		most         int64
	}{
		"four members":           {members: 4, most: 4},
		"five members":           {members: 5, most: 4},
		"added while it runs":    {members: 1, later: 9, most: 4},
		"guests":                 {guests: 9, most: 4},
		"members and guests":     {members: 3, guests: 6, most: 4},
		"namespaces":             {namespaces: 9, most: 4},
		"a limit of two":         {lists: informer.NewListLimit(2), members: 5, guests: 3, most: 2},
		"no limit":               {lists: informer.NewListLimit(0), members: 5, guests: 4, most: 9},
		"no limit, a zero value": {lists: &informer.ListLimit{}, members: 9, most: 9},
		"members with their own": {members: 5, alone: 3, most: 5},
		"guests with their own":  {members: 5, guests: 3, of: informer.ClientGo{Lists: informer.NewListLimit(2)}, most: 6},
		"the guests' options": {members: 5, guests: 3, of: informer.ClientGo{Lists: informer.NewListLimit(2), Options: func(runtime.Object) (anyOptions, error) {
			return anyOptions{Lists: informer.NewListLimit(0), WatchList: informer.WatchListOff}, nil
		}}, most: 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, most := &informer.Group{Lists: tc.lists}, &atomic.Int64{}
				source, own := newLister(most), informer.NewListLimit(1)
				add := func(n int, lists *informer.ListLimit) {
					t.Helper()
					for range n {
						opts := options{Name: fmt.Sprint(rand.Int64()), WatchList: informer.WatchListOff, Lists: lists}
						if err := g.Add(newInformer(t, source(), opts)); err != nil {
							t.Fatal(err)
						}
					}
				}
				add(tc.members, nil)
				add(tc.alone, own)
				if tc.namespaces > 0 {
					var names []string
					for n := range tc.namespaces {
						names = append(names, fmt.Sprint("n", n))
					}
					inf := must(informer.NewInNamespaces(func(name string) inNamespace {
						return inNamespace{informertest.NewSource[configMap]().Namespace(name), source()}
					}, names, anyOptions{WatchList: informer.WatchListOff, ErrorHandler: ignore}))
					if err := g.Add(inf); err != nil {
						t.Fatal(err)
					}
				}
				runUntilTheEnd(t, func(ctx context.Context) { _ = g.Run(ctx) })
				synctest.Wait()
				add(tc.later, nil)
				tc.of.Group = g
				if tc.of.Options == nil {
					tc.of.Options = func(runtime.Object) (anyOptions, error) { return anyOptions{WatchList: informer.WatchListOff}, nil }
				}
				for range tc.guests {
					guest := tc.of.NewSharedIndexInformer(source(), &corev1.ConfigMap{}, 0, nil)
					runUntilTheEnd(t, guest.RunWithContext)
				}
				sleepBubble(10 * time.Second)
				if got := most.Load(); got != tc.most {
					t.Errorf("%d lists at a time, want %d", got, tc.most)
				}
				for name, h := range g.Health() {
					if !h.(informer.Health).Synced {
						t.Errorf("%s has not synced", name)
					}
				}
			})
		})
	}
}

// Members that hang or fail delay the others by 5 s for each four that hang, and not more.
func TestMembersThatHangOrAreForbiddenHoldUpTheOthersBriefly(t *testing.T) {
	for _, tc := range []struct {
		hang, forbidden int
		want            time.Duration // until the 24 others have synced, which alone takes 6 s
	}{{0, 0, 6 * time.Second}, {0, 8, 6 * time.Second}, {4, 8, 11 * time.Second}, {8, 8, 16 * time.Second}} {
		t.Run(fmt.Sprint(tc.hang, " hang"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, source := informer.Group{ErrorHandler: ignore}, newLister(&atomic.Int64{})
				var members []*informer.CustomCacheInformer[configMap]
				for n := range 24 + tc.hang + tc.forbidden {
					l := source()
					if n >= 24 {
						l.takes = 0
						l.SetFaults(informertest.Faults{HoldLists: n < 24+tc.hang})
						l.Fail("list", forbidden("maps"), -1)
					}
					members = append(members, must(informer.NewFrom(l, options{Name: fmt.Sprint(n), WatchList: informer.WatchListOff})))
				}
				for _, n := range rand.Perm(len(members)) {
					if err := g.Add(members[n]); err != nil {
						t.Fatal(err)
					}
				}
				begun := time.Now()
				runUntilTheEnd(t, func(ctx context.Context) { _ = g.Run(ctx) })
				for _, inf := range members[:24] {
					if err := inf.WaitForSync(within(t, time.Minute)); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(begun); took > tc.want || tc.hang == 0 && took != tc.want {
					t.Errorf("the others have synced after %v, want %v", took, tc.want)
				}
			})
		})
	}
}

// Informers that stop at any moment leave no turn behind.
func TestAStopLeavesNoTurnBehind(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			lists := informer.NewListLimit(1)
			var stops []func()
			for n := range 5 {
				opts := options{Name: fmt.Sprint(n), Lists: lists, ErrorHandler: ignore}
				stops = append(stops, start(t, newInformer(t, informertest.NewSource(object("a", "1")), opts)))
			}
			for _, stop := range stops {
				for range rand.IntN(50) {
					<-time.After(1) // of the bubble; sleepBubble would wait until nothing is under way
				}
				go stop()
			}
			synctest.Wait()
			if got := waitsBehind(t, lists, func() {}); got != 0 {
				t.Errorf("the next informer waits for %v", got)
			}
		})
	}
}
