package clusters_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var seed = flag.Uint64("seed", 0, "the only seed of TestRandomClusters; 0 for some")

var turns = flag.Int("turns", 3000, "deeds of TestRandomClusters with each seed and each way to list; a hundredth with -short")

// Clusters come, go, break, change their credentials and swap their names at any time, and all watchers follow.
func TestRandomClusters(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		each(t, func(t *testing.T, opts options) { randomTurns(t, opts, seed) })
	})
}

func eachSeed(t *testing.T, test func(t *testing.T, seed uint64)) {
	seeds := []uint64{1, 2, 3, rand.Uint64()}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { test(t, seed) })
	}
}

func randomTurns(t *testing.T, opts options, seed uint64) {
	random := rand.New(rand.NewPCG(seed, uint64(opts.Queue)))
	opts.ErrorHandler = testkit.Ignore
	var slow sync.Mutex // protects pauses
	pauses := rand.New(rand.NewPCG(seed, seed))
	opts.Transform = func(obj configMap) (configMap, error) {
		slow.Lock()
		pause := pauses.IntN(50)
		slow.Unlock()
		if pause < 3 {
			time.Sleep(time.Duration(pause) * time.Millisecond)
		}
		return obj, nil
	}
	w := newWorld(t, opts)
	watchers := map[string]*views{}
	pause := func(event) {
		slow.Lock()
		n := pauses.IntN(40)
		slow.Unlock()
		if n < 4 {
			time.Sleep(time.Duration(n*n*n) * time.Millisecond)
		}
	}
	watch := func(name string, opts informer.WatcherOptions) {
		opts.Name = name
		v := newViews()
		v.block = pause
		watchers[name] = v
		testkit.AddWatcher(t, w.CustomCacheInformer, v, opts)
	}
	watch("plain", informer.WatcherOptions{})
	watch("keeps all", informer.WatcherOptions{MaxBacklog: -1})
	watch("merges", informer.WatcherOptions{MaxBacklog: 1})
	watch("workers", informer.WatcherOptions{Workers: 3})
	watch("resyncs", informer.WatcherOptions{ResyncPeriod: 3 * time.Second})
	watch("retries", informer.WatcherOptions{Retry: informer.Backoff(time.Millisecond, time.Second, 0)})
	w.start(0)

	names := []string{"a", "b", "c", "d"}
	servers := make([]*source, 6)
	for n := range servers {
		servers[n] = informertest.NewSource(testkit.Object("x", "1"), testkit.Object("y", "1"))
	}
	uids := map[*source]types.UID{}
	for n, s := range servers {
		uids[s] = types.UID(fmt.Sprint(n))
	}
	engaged := map[string]bool{}
	silent := map[string]<-chan struct{}{} // names that leave silently
	// settled drops what the watchers know of a cluster that has left silently.
	settle := func(name string) {
		if left := silent[name]; left != nil {
			select {
			case <-left:
			case <-time.After(time.Hour):
				t.Fatalf("%s does not leave: %+v", name, w.Health())
			}
			synctest.Wait()
			for _, v := range watchers {
				v.forget(name)
			}
			delete(silent, name)
		}
	}
	n := *turns
	if testing.Short() {
		n /= 100
	}
	for range n {
		name, server := names[random.IntN(len(names))], servers[random.IntN(len(servers))]
		from := informer.ClusterSource{Source: &credentials{source: server}, UID: uids[server]}
		if random.IntN(3) == 0 {
			from.UID = ""
		}
		switch deed := random.IntN(20); {
		case deed < 4 && !engaged[name]:
			settle(name) // or an add of its return may be forgotten
			must(t, w.Engage(name, from))
			engaged[name], w.sources[name] = true, server
		case deed < 6 && engaged[name]:
			w.disengage(name, informer.LeaveDeleted)
			engaged[name] = false
		case deed < 7 && engaged[name]:
			silent[name] = w.disengage(name, informer.LeaveSilently)
			engaged[name] = false
		case deed < 10 && engaged[name]:
			if random.IntN(2) == 0 { // the same cluster
				from.Source, from.UID = &credentials{source: w.sources[name]}, uids[w.sources[name]]
				server = w.sources[name]
			}
			must(t, w.Replace(name, from))
			w.sources[name] = server
		case deed < 11:
			server.Disconnect()
		case deed < 12:
			server.Expire()
		case deed < 13:
			server.Fail([]string{"list", "watch"}[random.IntN(2)], errors.New("failed"), 1+random.IntN(3))
		case deed < 14 && len(watchers) < 12:
			watch(fmt.Sprint("late ", len(watchers)), informer.WatcherOptions{Workers: random.IntN(3)})
		default:
			object := testkit.Object([]string{"x", "y", "z"}[random.IntN(3)], fmt.Sprint(random.IntN(1000)))
			if random.IntN(3) == 0 {
				_, _ = server.Delete(types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
			} else {
				server.Apply(object)
			}
		}
		if random.IntN(4) == 0 {
			time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
		}
	}
	for name := range silent {
		settle(name)
	}
	time.Sleep(10 * time.Minute)
	var left []string
	for _, name := range names {
		if engaged[name] {
			left = append(left, name)
		}
	}
	var all []*views
	for name, v := range watchers {
		t.Logf("%s has had %d events", name, len(v.take()))
		all = append(all, v)
	}
	w.check(left, all...)
}
