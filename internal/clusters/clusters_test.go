package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestClustersComeAndGo(t *testing.T) {
	each(t, func(t *testing.T, opts options) {
		opts.Indexers = informer.Indexers[configMap]{"value": func(obj configMap) ([]string, error) { return []string{obj.Data["value"]}, nil }}
		w := newWorld(t, opts)
		v, crew := w.watch(informer.WatcherOptions{}), w.watch(informer.WatcherOptions{Name: "crew", Workers: 3})
		w.engage("east", testkit.Object("x", "1"), testkit.Object("y", "1"))
		w.engage("gone", testkit.Object("x", "1"))
		<-w.disengage("gone", informer.LeaveDeleted) // before Run
		w.start(0)
		w.checkAfter(time.Second, []string{"east"}, v, crew)
		v.take()

		w.engage("west", testkit.Object("x", "1"), testkit.Object("z", "2"))
		w.cluster("east").Apply(testkit.Object("x", "2"))
		w.checkAfter(time.Second, []string{"east", "west"}, v, crew)
		equal(t, "events", v.take(), []string{"initial added west|x", "initial added west|z", "watch updated east|x"})
		for _, cluster := range []string{"east", "west"} {
			equal(t, "objects with the value 2 in "+cluster, testkit.Count(w.In(cluster).ByIndex("value", "2")), 1)
			equal(t, "objects in the namespace of "+cluster, testkit.Count(w.In(cluster).List("default", nil)), 2)
		}
		equal(t, "all objects with the value 2", testkit.Count(w.ByIndex("value", "2")), 2)
		if s, err := w.Snapshot(); opts.Durable != nil {
			errorSays(t, err, "only the informer's own store has snapshots")
		} else {
			must(t, err)
			equal(t, "z in the snapshot of west", testkit.Value(s.In("west").Get(key("z"))), "2")
			equal(t, "z in the snapshot of east", testkit.Value(s.In("east").Get(key("z"))), "none")
		}
		late := w.watch(informer.WatcherOptions{Name: "late"})
		w.checkAfter(time.Second, []string{"east", "west"}, v, crew, late)

		left := w.disengage("west", informer.LeaveDeleted)
		<-left
		w.check([]string{"east"}, v, crew, late)
		equal(t, "deletes", v.take(), []string{"left deleted west|x", "left deleted west|z"})
		if !w.SyncedIn("east") || w.SyncedIn("west") {
			t.Error("SyncedIn")
		}
		if _, _, err := w.In("west").Get(key("x")); !errors.Is(err, informer.ErrNotEngaged) || !errors.Is(err, informer.ErrPermanent) {
			t.Errorf("Get: %v", err)
		}
		w.engage("west")
		time.Sleep(time.Second)
		equal(t, "west is synced after its list", w.SyncedIn("west"), true)
		w.check([]string{"east", "west"}, v, crew, late)

		for _, watcher := range []*views{v, crew, late} {
			watcher.take()
		}
		<-w.disengage("east", informer.LeaveSilently)
		synctest.Wait()
		for _, watcher := range []*views{v, crew, late} {
			equal(t, "events of the leave", watcher.take(), []string{})
			watcher.forget("east")
		}
		w.check([]string{"west"}, v, crew, late)
		_, _ = w.cluster("east").Delete(key("x"))
		w.engage("east")
		w.checkAfter(time.Second, []string{"east", "west"}, v, crew, late)
		equal(t, "events", v.take(), []string{"initial added east|y"})
		// Versions of several clusters cannot be compared.
		equal(t, "version of all", w.ResourceVersion(), "")
		noError(t, w.WaitForVersionIn(testkit.Within(t, time.Second), "east", w.cluster("east").ResourceVersion()))
		var versions []string
		for _, at := range w.Versions() {
			versions = append(versions, at.Cluster+" "+at.ResourceVersion)
		}
		equal(t, "versions", versions, []string{"west " + w.cluster("west").ResourceVersion(), "east " + w.cluster("east").ResourceVersion()})
	})
}

// A cluster that hangs or is refused does not hold up the others.
func TestADeadClusterHoldsUpNoOther(t *testing.T) {
	each(t, func(t *testing.T, opts options) {
		opts.ErrorHandler = testkit.Ignore
		w := newWorld(t, opts)
		v := w.watch(informer.WatcherOptions{})
		w.engage("well", testkit.Object("x", "1"))
		for _, name := range []string{"hangs", "refuses"} {
			w.cluster(name, testkit.Object("x", "1"))
		}
		w.cluster("refuses").Fail("list", testkit.Forbidden("configmaps"), -1)
		w.cluster("refuses").Fail("watch", testkit.Forbidden("configmaps"), -1)
		w.cluster("hangs").SetFaults(informertest.Faults{HoldLists: true, Mute: true})
		w.engage("hangs")
		w.engage("refuses")
		w.start(29 * time.Second)
		equal(t, "synced before 30 s", w.HasSynced(), false)
		noError(t, w.WaitForSyncIn(t.Context(), "well"))
		time.Sleep(2 * time.Second)
		if !w.HasSynced() || w.Health().Ready() != nil {
			t.Errorf("it still waits: %v", w.Health().Ready())
		}
		h := w.Health()
		var synced []string
		for _, c := range h.Clusters {
			synced = append(synced, fmt.Sprintf("%s %t %t", c.Cluster, c.Synced, c.SourceFailures > 0))
		}
		equal(t, "health", synced, []string{"well true false", "hangs false false", "refuses false true"})
		err := w.WaitForSyncIn(testkit.Within(t, time.Second), "refuses")
		var late *informer.SyncError
		if !errors.As(err, &late) || !strings.Contains(err.Error(), "forbidden") || !strings.Contains(err.Error(), "cluster refuses") {
			t.Errorf("WaitForSyncIn: %v", err)
		}
		w.cluster("well").Apply(testkit.Object("x", "2"))
		w.cluster("refuses").Heal()
		w.cluster("hangs").SetFaults(informertest.Faults{})
		w.checkAfter(5*time.Minute, []string{"well", "hangs", "refuses"}, v)
	})
}

func TestTheWaitForTheFirstLists(t *testing.T) {
	for name, c := range map[string]struct {
		wait     time.Duration
		clusters []string // that hang, next to one that does not unless it is left out
		well     bool
		stored   bool // a Durable knows another cluster
		synced   time.Duration
	}{
		"none is engaged":            {synced: 0},
		"all answer":                 {well: true, synced: 0},
		"one hangs":                  {well: true, clusters: []string{"a"}, synced: 30 * time.Second},
		"a shorter wait":             {well: true, wait: time.Second, clusters: []string{"a"}, synced: time.Second},
		"no limit":                   {well: true, wait: -1, clusters: []string{"a"}, synced: 10 * time.Minute},
		"all hang":                   {clusters: []string{"a", "b"}, synced: 10 * time.Minute},
		"one that is stored only":    {clusters: []string{"a"}, stored: true, synced: 10 * time.Minute},
		"nothing else is waited for": {well: true, clusters: []string{"a", "b", "c"}, synced: 30 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			opts := options{WatchList: informer.WatchListOff, ErrorHandler: testkit.Ignore}
			if c.stored {
				store := informertest.NewDurable()
				must(t, store.Apply(t.Context(), nil, `{"old":{"version":"1","uid":"u"}}`))
				opts.Durable = store
			}
			w := newWorldWith(t, opts, informer.ClusterOptions{SyncWait: c.wait})
			for _, name := range c.clusters {
				w.cluster(name).SetFaults(informertest.Faults{HoldLists: true})
				w.engage(name)
			}
			if c.well {
				w.engage("well", testkit.Object("x", "1"))
			}
			w.start(0)
			begun := time.Now()
			healed := time.AfterFunc(10*time.Minute, func() {
				for _, name := range c.clusters {
					w.cluster(name).SetFaults(informertest.Faults{})
				}
			})
			defer healed.Stop()
			noError(t, w.WaitForSync(t.Context()))
			equal(t, "synced after", time.Since(begun), c.synced)
		})
	}
}

// lists counts the lists of a source, first streams included.
func lists(s *source) (n int) {
	for _, r := range s.Requests() {
		if r.Verb == "list" && r.Options.Limit != 1 || r.Options.SendInitialEvents != nil {
			n++
		}
	}
	return n
}

func TestNewCredentialsOfACluster(t *testing.T) {
	each(t, func(t *testing.T, opts options) {
		opts.ErrorHandler = testkit.Ignore
		w := newWorld(t, opts)
		v := w.watch(informer.WatcherOptions{})
		east := w.cluster("east", testkit.Object("x", "1"))
		wire := func() *credentials { return &credentials{source: east} }
		first := wire()
		must(t, w.Engage("east", informer.ClusterSource{Source: first, UID: "1"}))
		must(t, w.Replace("east", informer.ClusterSource{Source: first, UID: "1"})) // before Run
		w.start(0)
		w.checkAfter(time.Second, []string{"east"}, v)
		v.take()

		before := lists(east)
		for n := range 5 { // the old ones work still, or have been refused for some time
			if n > 2 {
				first.revoked.Store(true)
				east.Disconnect()
				time.Sleep(time.Hour)
			}
			east.Apply(testkit.Object("x", fmt.Sprint("a", n)))
			second := wire()
			must(t, w.Replace("east", informer.ClusterSource{Source: second, UID: "1"}))
			synctest.Wait()
			first.revoked.Store(true)
			east.Disconnect()
			time.Sleep(time.Second)
			east.Apply(testkit.Object("x", fmt.Sprint("b", n)))
			w.checkAfter(time.Second, []string{"east"}, v)
			first = second
		}
		equal(t, "lists", lists(east), before)
		equal(t, "events", len(v.take()), 10)
		if got := w.Health().Clusters; len(got) != 1 || got[0].SourceFailures != 0 || !got[0].Watching {
			t.Errorf("%+v", got)
		}

		// Another cluster takes the place of the old one, or one that may be another.
		for _, uid := range []types.UID{"2", ""} {
			other := informertest.NewSource(testkit.Object("x", "1"), testkit.Object("y", "1"))
			must(t, w.Replace("east", informer.ClusterSource{Source: other, UID: uid}))
			w.sources["east"] = other
			w.checkAfter(time.Second, []string{"east"}, v)
			told := v.take()
			equal(t, "events with UID "+string(uid), told[:2], []string{"initial added east|x", "initial added east|y"})
			equal(t, "delete with UID "+string(uid), slices.Contains(told, "left deleted east|x"), true)
			must(t, w.Replace("east", informer.ClusterSource{Source: east}))
			w.sources["east"] = east
			w.checkAfter(time.Second, []string{"east"}, v)
			v.take()
		}
	})
}

// New credentials may come in the middle of a list.
func TestNewCredentialsInTheMiddleOfAList(t *testing.T) {
	each(t, func(t *testing.T, opts options) {
		opts.ErrorHandler = testkit.Ignore
		var w *world
		turns := 0
		east := informertest.NewSource(testkit.Object("u", "1"), testkit.Object("v", "1"), testkit.Object("w", "1"), testkit.Object("x", "1"))
		opts.Transform = func(obj configMap) (configMap, error) {
			if turns++; turns == 3 || turns == 9 {
				_, _ = east.Delete(key("u"))
				noError(t, w.Replace("east", informer.ClusterSource{Source: &credentials{source: east}, UID: "1"}))
			}
			return obj, nil
		}
		w = newWorld(t, opts)
		v := w.watch(informer.WatcherOptions{})
		w.sources["east"] = east
		must(t, w.Engage("east", informer.ClusterSource{Source: east, UID: "1"}))
		w.start(0)
		w.checkAfter(time.Minute, []string{"east"}, v)
		east.Apply(testkit.Object("u", "2"))
		east.Expire() // the next list is the second one
		w.checkAfter(time.Minute, []string{"east"}, v)
	})
}

// New credentials in the middle of a list do not lead back to the version before it.
func TestNewCredentialsDoNotLeadBack(t *testing.T) {
	each(t, func(t *testing.T, opts options) {
		opts.ErrorHandler = testkit.Ignore
		east := informertest.NewSource(testkit.Object("u", "1"), testkit.Object("v", "1"), testkit.Object("w", "1"))
		var w *world
		again := false
		opts.Transform = func(obj configMap) (configMap, error) {
			if obj.Name == "v" && obj.Data["value"] == "3" && !again {
				again = true
				time.Sleep(time.Second) // the objects before it are delivered
				noError(t, w.Replace("east", informer.ClusterSource{Source: &credentials{source: east}, UID: "1"}))
			}
			return obj, nil
		}
		w = newWorld(t, opts)
		v := w.watch(informer.WatcherOptions{})
		w.sources["east"] = east
		first := &credentials{source: east}
		must(t, w.Engage("east", informer.ClusterSource{Source: first, UID: "1"}))
		w.start(time.Second)
		east.SetFaults(informertest.Faults{Mute: true})
		for _, value := range []string{"2", "3"} {
			for _, name := range []string{"u", "v", "w"} {
				east.Apply(testkit.Object(name, value))
			}
		}
		first.expired.Store(true) // one of the API servers does not know the history
		east.Disconnect()
		east.SetFaults(informertest.Faults{})
		w.checkAfter(time.Minute, []string{"east"}, v)
		equal(t, "there was a second list", again, true)
		seen := map[string]string{}
		for _, e := range v.events {
			if name, value := e.Key().Name, e.New.Data["value"]; value < seen[name] {
				t.Errorf("%s is %s after %s", name, value, seen[name])
			} else {
				seen[name] = value
			}
		}
	})
}

// After a change of the credentials, an object that could not be used is missing still.
func TestNewCredentialsDoNotMakeAStateExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{Queue: informer.QueueRealFIFO, ErrorHandler: testkit.Ignore, Transform: testkit.NotBad})
		east := w.cluster("east", testkit.Object("x", "1"))
		from := informer.ClusterSource{Source: east, UID: "1"}
		must(t, w.Engage("east", from))
		w.start(0)
		version := func() string {
			time.Sleep(time.Second)
			s, err := w.Snapshot()
			must(t, err)
			return fmt.Sprint(s.Versions())
		}
		equal(t, "version", version(), "["+east.ResourceVersion()+"]")
		east.Apply(testkit.Object("x", "bad"))
		equal(t, "version with a bad object", version(), "[]")
		must(t, w.Replace("east", from))
		equal(t, "version with new credentials", version(), "[]")
	})
}

// The events that Select makes have a cluster, too.
func TestSelectKnowsTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{ErrorHandler: testkit.Ignore})
		var told []string
		fail := true
		s := informer.Select(informer.WatcherFunc[configMap](func(_ context.Context, e event) error {
			told = append(told, e.Type.String()+" "+e.Cluster())
			return testkit.ErrorIf(fail, errors.New("failed"))
		}), func(obj configMap) bool { return obj.Data["value"] == "1" })
		testkit.AddWatcher(t, w.CustomCacheInformer, s, informer.WatcherOptions{Retry: informer.Backoff(time.Minute, time.Minute, 0)})
		w.start(0)
		w.engage("east", testkit.Object("x", "1"))
		time.Sleep(time.Second)
		synctest.Wait()
		fail = false
		w.cluster("east").Apply(testkit.Object("x", "2"))
		time.Sleep(time.Hour)
		synctest.Wait()
		equal(t, "events", told, []string{"added east", "deleted east"})
	})
}

// credentials are one way to reach a source, which may be refused.
type credentials struct {
	*source
	revoked atomic.Bool
	expired atomic.Bool // the next watch is
	hangs   atomic.Bool // lists get no answer
	strange atomic.Bool // a proxy answers lists, with a Status that is decoded as a list: an empty one without a version
}

func (c *credentials) ListWithContext(ctx context.Context, opts metav1.ListOptions) (list runtime.Object, err error) {
	switch {
	case c.revoked.Load():
		return nil, apierrors.NewUnauthorized("revoked")
	case c.hangs.Load():
		<-ctx.Done()
		return nil, ctx.Err()
	case c.strange.Load():
		return &metav1.List{}, nil
	}
	return c.source.ListWithContext(ctx, opts)
}

func (c *credentials) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	switch {
	case c.revoked.Load():
		return nil, apierrors.NewUnauthorized("revoked")
	case c.expired.Swap(false):
		return nil, apierrors.NewResourceExpired("too old")
	}
	return c.source.WatchWithContext(ctx, opts)
}
