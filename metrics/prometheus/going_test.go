package prometheus_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/metrics/prometheus"
)

func TestWithoutAScrapeTheNumberOfSeriesStaysBounded(t *testing.T) {
	const there, spare = 70, 100
	bubble(t, []configMap{object("a", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		inf := r.add(src, options{})
		for n := range there {
			<-r.join(inf, fmt.Sprint("stays ", n), ignore, watchOpts{}).Synced()
		}
		most := 0
		for n := range 2000 {
			reg := r.join(inf, fmt.Sprint("comes and goes ", n), ignore, watchOpts{})
			<-reg.Synced()
			reg.Remove()
			<-reg.Stopped()
			most = max(most, r.metrics.Kept())
		}
		if limit := 2*(there+2) + spare + 1; most > limit || most < there+spare {
			r.t.Errorf("%d entries were kept, want at most %d", most, limit)
		}
		// Watchers that were there all the time have lost nothing.
		src.Apply(object("a", "2"))
		sleepBubble(time.Minute)
		all := scrape(r.t, r.registry)
		if n := len(having(all, "handling_seconds_count")); n != there {
			r.t.Errorf("%d watchers have series", n)
		}
		for _, name := range having(all, "handling_seconds_count") {
			if all[name] != 2 {
				r.t.Errorf("%s is %v", name, all[name])
			}
		}
		if n := r.metrics.KeptInVectors(); n != r.metrics.KeptSeries() {
			r.t.Errorf("%d series are kept in vectors, and %d are known", n, r.metrics.KeptSeries())
		}
	})
}

func TestInformersThatComeAndGoStayBoundedToo(t *testing.T) {
	m := prometheus.New(func() map[string]informer.MemberHealth { return nil })
	o := m.Observer()
	for n := range 10_000 {
		name := fmt.Sprint("i", n)
		o.List(informer.ListInfo{Informer: name})
		o.Handled(informer.HandledInfo{Informer: name, Watcher: "w"})
		o.Store(informer.StoreInfo{Informer: name, Op: "get"})
		if kept := m.Kept(); kept > 102 {
			t.Fatalf("%d entries are kept", kept)
		}
	}
	if all := scrape(t, registered(m)); len(all) > 0 {
		t.Errorf("when none is there, there are %v", all)
	}
	if n := m.KeptInVectors(); n != 0 {
		t.Errorf("%d series are kept in vectors", n)
	}
}

func TestSweepsGetRarerWithTheNumberOfWatchers(t *testing.T) {
	asked := 0
	health := informer.Health{Name: "i"}
	m := prometheus.New(func() map[string]informer.MemberHealth {
		asked++
		return map[string]informer.MemberHealth{"i": health}
	})
	o := m.Observer()
	for n := range 10_000 {
		name := fmt.Sprint("w", n)
		health.Watchers = append(health.Watchers, informer.WatcherHealth{WatcherStats: informer.WatcherStats{Name: name}})
		o.Handled(informer.HandledInfo{Informer: "i", Watcher: name})
	}
	if asked > 8 || m.Kept() != 10_001 {
		t.Errorf("to get %d watchers, Health was asked %d times", m.Kept(), asked)
	}
}

func TestWhoComesWhileHealthIsAskedIsNotSwept(t *testing.T) {
	var m *prometheus.Metrics
	comes := func() {}
	m = prometheus.New(func() map[string]informer.MemberHealth {
		comes() // after the state of health was taken, from the caller's view
		return map[string]informer.MemberHealth{"i": informer.Health{Name: "i", Watchers: []informer.WatcherHealth{{WatcherStats: informer.WatcherStats{Name: "there"}}}}}
	})
	o, registry := m.Observer(), registered(m)
	o.Handled(informer.HandledInfo{Informer: "i", Watcher: "there"})
	o.Handled(informer.HandledInfo{Informer: "i", Watcher: "gone"})
	o.Handled(informer.HandledInfo{Informer: "old", Watcher: "gone"})
	o.List(informer.ListInfo{Informer: "gone"})
	comes = func() {
		o.Handled(informer.HandledInfo{Informer: "i", Watcher: "new"})
		o.Handled(informer.HandledInfo{Informer: "new", Watcher: "new"})
		o.Handled(informer.HandledInfo{Informer: "old", Watcher: "new"})
		o.List(informer.ListInfo{Informer: "newer"})
	}
	all := scrape(t, registry)
	for _, name := range []string{"new", "newer", "old"} {
		if len(having(all, fmt.Sprintf("lists_total{informer=%q", name))) == 0 {
			t.Errorf("the informer %s is not there", name)
		}
	}
	if gone := having(all, `"gone"`); len(gone) > 0 {
		t.Errorf("there are still %v", gone)
	}
	for _, i := range []string{"i", "new", "old"} {
		if n := all[fmt.Sprintf("informer_watcher_handling_seconds_count{informer=%q,watcher=%q}", i, "new")]; n != 1 {
			t.Errorf("%v calls of the new watcher of %s are counted", n, i)
		}
	}
	comes = func() {} // none of them exists at the next scrape
	if left := having(scrape(t, registry), `"new`); len(left) > 0 {
		t.Errorf("there are still %v", left)
	}
}

// A scrape that is read slowly, or whose Health takes long, must not hold up informers.
func TestAnObserverDoesNotWaitForAScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m := prometheus.New(func() map[string]informer.MemberHealth { <-release; return nil })
		o := m.Observer()
		scraped := make(chan prom.Metric)
		go func() { m.Collect(scraped); close(scraped) }()
		synctest.Wait() // Collect is in the call of Health
		o.Handled(informer.HandledInfo{Informer: "i", Watcher: "w"})
		close(release)
		<-scraped
		synctest.Wait() // Collect waits for the reader
		for n := range 50 {
			o.Handled(informer.HandledInfo{Informer: "i", Watcher: fmt.Sprint("w", n)})
			o.Store(informer.StoreInfo{Informer: "i", Op: "get"})
			o.List(informer.ListInfo{Informer: fmt.Sprint("i", n%3)})
		}
		for range scraped {
		}
	})
}

func TestOneSweepAtATimeWithoutAScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, release := make(chan bool, 100), make(chan struct{})
		m := prometheus.New(func() map[string]informer.MemberHealth { asked <- true; <-release; return nil })
		o := m.Observer()
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() {
				for k := range 10 {
					o.Handled(informer.HandledInfo{Informer: "i", Watcher: fmt.Sprint(n, " ", k)})
				}
			})
		}
		synctest.Wait()
		if len(asked) != 1 {
			t.Errorf("Health was asked %d times at once", len(asked))
		}
		close(release)
		all.Wait()
		before := len(asked)
		for n := range 1000 {
			o.Handled(informer.HandledInfo{Informer: "i", Watcher: fmt.Sprint(n)})
		}
		if len(asked) == before {
			t.Error("Health was not called again after the first sweep")
		}
	})
}

func TestScrapesWhileInformersAndWatchersComeAndGo(t *testing.T) {
	r := newRig(t)
	stop := scraping(t, r.registry)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for k := range 10 {
				src := informertest.NewSource(object("a", "1"), object("b", "1"))
				inf := r.add(src, options{Name: fmt.Sprint("i", n)})
				var watchers sync.WaitGroup
				for w := range 3 {
					watchers.Go(func() {
						for range 5 {
							reg := r.join(inf, fmt.Sprint("w", w), ignore, watchOpts{})
							<-reg.Synced()
							src.Apply(object("a", fmt.Sprint(k, w)))
							reg.Remove()
							<-reg.Stopped()
						}
					})
				}
				watchers.Wait()
				noError(t, r.group.Remove(inf))
			}
		})
	}
	all.Wait()
	stop()
	of(t, scrape(t, r.registry), "", values{})
	if n := r.metrics.KeptInVectors(); n != 0 || r.metrics.Kept() != 0 {
		t.Errorf("%d series are kept in vectors, of %d entries", n, r.metrics.Kept())
	}
}
