package clusters_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// A restart keeps the clusters that the store has, also before something engages them. One that is the same continues without a
// list, and misses no delete. Another one under the name is compared with a list, and so is one that may be another.
func TestARestartOverClusters(t *testing.T) {
	for _, when := range []string{"before Run", "while the store is read", "later"} {
		inBubble(t, when, func(t *testing.T) {
			w := overStore(t, informertest.NewDurable(), nil)
			all := []string{"same", "other", "unknown", "unnamed", "back", "away", "gone"}
			for _, name := range all {
				w.cluster(name, testkit.Object("x", "1"), testkit.Object("y", "1"))
				w.engageAs(name, types.UID(strings.TrimPrefix(name, "unnamed")))
			}
			w.start(time.Minute)
			w.stop()

			w = w.next()
			for name, gone := range map[string]string{"same": "y", "unknown": "x", "unnamed": "x", "back": "x"} {
				_, _ = w.sources[name].Delete(key(gone))
			}
			w.sources["other"] = informertest.NewSource(testkit.Object("x", "2")) // with the UID and the version of the first x
			for n := range 10 {
				w.sources["other"].Apply(testkit.Object("z", fmt.Sprint(n)))
			}
			before := map[string]int{}
			for name, s := range w.sources {
				before[name] = lists(s)
			}
			v := w.watch(informer.WatcherOptions{})
			engage := func() {
				for name, uid := range map[string]types.UID{"same": "same", "other": "another", "unknown": "", "unnamed": "", "back": "back"} {
					w.engageAs(name, uid)
				}
			}
			switch when {
			case "before Run":
				engage()
				must(t, w.DisengageStored(informer.LeaveDeleted, "away"))
				all = all[:len(all)-1]
				w.start(0)
			case "while the store is read":
				release := w.store.Hang()
				w.start(0)
				synctest.Wait()
				engage()
				w.disengage("back", informer.LeaveDeleted)
				w.engageAs("back", "back")
				release()
			default:
				w.start(time.Second)
				equal(t, "synced without clusters that nothing has engaged", w.HasSynced(), true)
				for name, s := range w.sources {
					equal(t, "objects of "+name, testkit.Count(w.In(name).List("default", nil)), 2)
					equal(t, "requests to "+name, lists(s)-before[name], 0)
				}
				engage()
			}
			w.checkAfter(time.Second, all, v)
			noError(t, w.Health().Ready())
			left := 0
			if when == "while the store is read" {
				left = 1
			}
			for name, want := range map[string]int{"same": 0, "other": 1, "unknown": 1, "unnamed": 1, "back": left, "away": 0} {
				equal(t, "lists of "+name, lists(w.sources[name])-before[name], want)
			}
			equal(t, "x of the other cluster", testkit.Value(w.In("other").Get(key("x"))), "2")
			want := slices.DeleteFunc([]string{"left deleted gone|x", "left deleted gone|y"}, func(string) bool { return when != "before Run" })
			got := slices.DeleteFunc(v.take(), func(e string) bool { return !strings.HasPrefix(e, "left") || strings.Contains(e, "back|") })
			equal(t, "leaves", got, want)
			for _, c := range w.Health().Clusters {
				loose := c.Cluster == "away" || c.Cluster == "gone"
				if (c.SourceError != nil) != loose || c.Watching == loose {
					t.Errorf("%s: %v, watching %t", c.Cluster, c.SourceError, c.Watching)
				}
			}
			if when != "before Run" {
				must(t, w.DisengageStored(informer.LeaveDeleted, "away"))
				w.checkAfter(time.Second, all[:len(all)-1], v)
				equal(t, "events", v.take(), []string{"left deleted gone|x", "left deleted gone|y"})
			}
			w.engageAs("away", "away")
			time.Sleep(time.Second)
			equal(t, "lists of away", lists(w.sources["away"])-before["away"], 0)
			equal(t, "events", len(v.take()), 0)
		})
	}
}

// refuse makes a store refuse a key.
func refuse(store *testkit.Durable, refused string) {
	store.Fail(func(op, key string) error {
		return testkit.ErrorIf(op == "apply" && key == refused, fmt.Errorf("refused: %w", informer.ErrPermanent))
	})
}

// A delete that no watcher has handled comes again after the restart, with its cluster.
func TestADeleteOutlivesItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := overStore(t, informertest.NewDurable(), testkit.Ignore)
		w.cluster("east", testkit.Object("x", "1"))
		w.engageAs("east", "1")
		failing := informer.WatcherFuncs[configMap]{DeleteFunc: func(context.Context, event) error { return errors.New("failed") }}
		testkit.AddWatcher(t, w.CustomCacheInformer, failing, informer.WatcherOptions{Retry: informer.Backoff(time.Hour, time.Hour, 0)})
		w.start(time.Minute)
		_, _ = w.cluster("east").Delete(key("x"))
		time.Sleep(time.Minute)
		w.stop()
		w = w.next()
		v := w.watch(informer.WatcherOptions{})
		w.start(time.Minute)
		equal(t, "events", v.take(), []string{"initial deleted east|x"})
	})
}

// The next start deletes objects that the store has refused to delete: those of a cluster that has left, and those of an earlier
// informer over one cluster.
func TestTheNextStartMakesRefusedDeletes(t *testing.T) {
	for _, leave := range []informer.Leave{informer.LeaveDeleted, informer.LeaveSilently} {
		inBubble(t, fmt.Sprint("leave ", leave), func(t *testing.T) {
			store := informertest.NewDurable()
			testkit.OneRun(t, informertest.NewSource(testkit.Object("x", "1")), store, options{})
			w := overStore(t, store.Reopen(), testkit.Ignore)
			refuse(w.store, "default/x")
			w.engageAs("east", "1")
			w.start(time.Minute)
			w.store.Fail(nil)
			w.cluster("west", testkit.Object("x", "1"))
			w.engageAs("west", "2")
			time.Sleep(time.Minute)
			refuse(w.store, "west|default/x")
			<-w.disengage("west", leave)
			w.cluster("east").Apply(testkit.Object("y", "1"))
			time.Sleep(time.Minute)
			equal(t, "stored", len(testkit.Stored(w.store)), 3)

			w = w.next()
			v := w.watch(informer.WatcherOptions{})
			w.start(0)
			w.checkAfter(time.Minute, []string{"east"})
			told := v.take()
			equal(t, "delete of west", slices.Contains(told, "left deleted west|x"), leave == informer.LeaveDeleted)
			equal(t, "delete of what was there before", slices.Contains(told, "initial added |x") && slices.Contains(told, "initial deleted |x"), true)
		})
	}
}

// A cluster that leaves is named in the bookmark. So a crash in the middle of the leave does not end it, unless the cluster is
// engaged again.
func TestACrashWhileAClusterLeaves(t *testing.T) {
	const back = 0
	for _, leave := range []informer.Leave{informer.LeaveDeleted, informer.LeaveSilently, back} {
		for _, effect := range []bool{false, true} {
			if leave == back && !effect {
				continue // the last bookmark may be from before the return
			}
			inBubble(t, fmt.Sprint(leave, " the write has happened ", effect), func(t *testing.T) {
				w := overStore(t, informertest.NewDurable(), testkit.Ignore)
				for n := range 1500 { // more than a batch
					w.cluster("east").Apply(testkit.Object(fmt.Sprint("x", n), "1"))
				}
				w.cluster("west", testkit.Object("x", "1"))
				w.engageAs("east", "1")
				w.engageAs("west", "2")
				v := w.watch(informer.WatcherOptions{})
				w.start(time.Minute)
				store, applies := w.store, 0
				crash := func(op, _ string) error {
					if applies++; op == "apply" && applies > 1 {
						store.Crash()
						return errors.New("crashed")
					}
					return nil
				}
				if store.Fail(crash); effect {
					store.Fail(nil)
					store.FailAfter(crash)
				}
				release := store.Hang()
				if w.disengage("east", cmp.Or(leave, informer.LeaveDeleted)); leave == back {
					w.engageAs("east", "1")
				}
				release()
				time.Sleep(time.Minute)
				w.stop()
				told := len(slices.DeleteFunc(v.take(), func(e string) bool { return e[0] != 'l' }))

				w = w.next()
				v = w.watch(informer.WatcherOptions{})
				w.start(time.Minute)
				if leave == back {
					equal(t, "engaged", testkit.Sorted(w.Engaged()), []string{"east", "west"})
					w.engageAs("east", "1")
					w.checkAfter(time.Minute, []string{"east", "west"})
					return
				}
				deletes := len(slices.DeleteFunc(v.take(), func(e string) bool { return !strings.Contains(e, " deleted ") }))
				if leave == informer.LeaveSilently {
					v.forget("east")
					equal(t, "deletes", deletes+told, 0)
				} else if deletes < 1500-told || deletes > 1500 {
					t.Errorf("%d deletes after the crash and %d before it, of 1500 objects", deletes, told)
				}
				w.check([]string{"west"}) // the watcher got the deletes of objects that it does not know
			})
		}
	}
}

// mind is a watcher that outlives the processes. It has the objects of its events, by cluster and key.
type mind struct {
	mu    sync.Mutex
	knows map[string]string
}

func (m *mind) Add(_ context.Context, e event) error    { return m.note(e) }
func (m *mind) Update(_ context.Context, e event) error { return m.note(e) }
func (m *mind) Delete(_ context.Context, e event) error { return m.note(e) }

func (m *mind) note(e event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id := e.Cluster() + " " + e.Key().String(); e.Type == informer.EventDeleted {
		delete(m.knows, id)
	} else {
		m.knows[id] = e.New.Data["value"]
	}
	return nil
}

func (m *mind) forget(cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.knows, func(id, _ string) bool { return id[:len(cluster)] == cluster })
}

// Processes crash at any moment, clusters come, go and swap their names in each and between two, and the watcher that outlives
// them knows in the end what is there.
func TestRandomRestartsOverClusters(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { randomRestarts(t, rand.New(rand.NewPCG(seed, 5)), max(3, *turns/100)) })
	})
}

func randomRestarts(t *testing.T, random *rand.Rand, processes int) {
	if testing.Short() {
		processes = 3
	}
	names := []string{"a", "b", "c", "d"}
	var servers []*source
	uids := map[*source]types.UID{}
	for n := range 5 {
		servers = append(servers, informertest.NewSource(testkit.Object("x", fmt.Sprint(n)), testkit.Object("y", "1"))) // copies that differ
		uids[servers[n]] = types.UID(fmt.Sprint(n))
	}
	wanted, silent := map[string]*source{}, map[string]<-chan struct{}{}
	m := &mind{knows: map[string]string{}}
	store := informertest.NewDurable()
	change := func() {
		server, object := servers[random.IntN(len(servers))], testkit.Object([]string{"x", "y", "z"}[random.IntN(3)], fmt.Sprint(random.IntN(1000)))
		switch random.IntN(10) {
		case 0:
			server.Disconnect()
		case 1:
			server.Expire()
		case 2, 3, 4:
			_, _ = server.Delete(types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
		default:
			server.Apply(object)
		}
	}
	for process := range processes {
		last := process == processes-1
		store = store.Reopen()
		must(t, store.Err())
		inf, err := informer.NewOverClusters(options{Durable: store, WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore}, informer.ClusterOptions{})
		must(t, err)
		testkit.AddWatcher(t, inf.CustomCacheInformer, m, informer.WatcherOptions{Retry: informer.Backoff(time.Millisecond, time.Second, 0)})
		here := map[string]bool{}
		engage := func(name string) {
			if left := silent[name]; left != nil {
				<-left
				synctest.Wait()
				m.forget(name)
			}
			delete(silent, name)
			if wanted[name] == nil {
				wanted[name] = servers[random.IntN(len(servers))]
			}
			from := informer.ClusterSource{Source: wanted[name], UID: uids[wanted[name]]}
			if random.IntN(4) == 0 {
				from.UID = ""
			}
			must(t, inf.Engage(name, from))
			here[name] = true
		}
		for name := range silent { // the progress of the leave is not known
			m.forget(name)
			silent[name] = nil
		}
		for range random.IntN(4) {
			change() // while no process runs
		}
		for _, name := range names {
			if wanted[name] != nil && random.IntN(3) == 0 {
				wanted[name] = servers[random.IntN(len(servers))] // the name belongs to another one now
			}
			if wanted[name] != nil && random.IntN(3) == 0 {
				engage(name)
			}
		}
		stop := testkit.Start(t, inf.CustomCacheInformer)
		for turn := range 5 + random.IntN(40) {
			if random.IntN(2) == 0 {
				time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			}
			if turn == 20 {
				store.FailRandomly(random.Uint64(), 0.2)
			}
			switch name, deed := names[random.IntN(len(names))], random.IntN(18); {
			case deed < 9:
				change()
			case !here[name]:
				engage(name)
			case deed < 12:
				leave := []informer.Leave{informer.LeaveDeleted, informer.LeaveSilently}[random.IntN(2)]
				left, err := inf.Disengage(name, leave)
				must(t, err)
				if wanted[name], here[name] = nil, false; leave == informer.LeaveSilently {
					silent[name] = left
				}
			case deed < 14:
				if random.IntN(2) == 0 {
					wanted[name] = servers[random.IntN(len(servers))]
				}
				must(t, inf.Replace(name, informer.ClusterSource{Source: wanted[name], UID: uids[wanted[name]]}))
			}
		}
		if !last && random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
		}
		if !last {
			if random.IntN(2) == 0 {
				store.Crash()
			}
			stop()
			continue
		}
		store.Heal()
		for _, name := range names {
			if wanted[name] != nil && !here[name] {
				engage(name)
			}
		}
		must(t, inf.DisengageStored(informer.LeaveDeleted))
		time.Sleep(10 * time.Minute)
		want := map[string]string{}
		for name, server := range wanted {
			if server != nil {
				for _, obj := range server.Objects() {
					want[name+" "+cache.MetaObjectToName(obj).String()] = obj.Data["value"]
				}
			}
		}
		for name := range silent {
			m.forget(name)
		}
		m.mu.Lock()
		if !maps.Equal(m.knows, want) {
			t.Errorf("the watcher knows %v\nwant %v", m.knows, want)
		}
		m.mu.Unlock()
		equal(t, "objects in the store", testkit.Count(inf.List("", nil)), len(want))
		stop()
	}
}
