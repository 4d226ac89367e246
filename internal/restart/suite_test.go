package restart_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // most tests provoke errors
	informertest.Main(m)
}

// Short names for the helpers that the test packages share.
type (
	ci         = testkit.Informer
	configMap  = testkit.ConfigMap
	durable    = testkit.Durable
	errorLog   = testkit.ErrorLog
	event      = testkit.Event
	options    = testkit.Options
	plainStore = testkit.PlainStore
	recorder   = testkit.Recorder
	source     = testkit.Source
)

const hour = testkit.Hour

var (
	addWatcher    = testkit.AddWatcher
	asked         = testkit.Asked
	bothWays      = testkit.BothWays
	byValue       = testkit.ByValue
	checkKept     = testkit.CheckKept
	checkStore    = testkit.CheckStore
	checkView     = testkit.CheckView
	eachQueue     = testkit.EachQueue
	eachQueueOf   = testkit.EachQueueOf
	failOn        = testkit.FailOn
	ignore        = testkit.Ignore
	inBubble      = testkit.InBubble
	longOrShort   = testkit.LongOrShort
	must          = testkit.Must
	noError       = testkit.NoError
	equal         = testkit.Equal
	errorIs       = testkit.ErrorIs
	errorIf       = testkit.ErrorIf
	errorSays     = testkit.ErrorContains
	errDown       = testkit.ErrDown
	keyOf         = testkit.KeyOf
	newInformer   = testkit.NewInformer
	newPlainStore = testkit.NewPlainStore
	object        = testkit.Object
	oneRun        = testkit.OneRun
	running       = testkit.Running
	sleepBubble   = testkit.SleepBubble
	small         = testkit.Small
	sorted        = testkit.Sorted
	start         = testkit.Start
	told          = testkit.Told
	took          = testkit.Took
	valueOf       = testkit.Value
	versions      = testkit.Versions
	watched       = testkit.Watched
	within        = testkit.Within
)

// objects returns an object with the value 1 for each name.
func objects(names ...string) []configMap {
	var objs []configMap
	for _, name := range names {
		objs = append(objs, object(name, "1"))
	}
	return objs
}

// lived returns a source with objects of these names, and the store that a process has filled from
// it, as the next process finds it.
func lived(t *testing.T, opts options, names ...string) (*source, *durable) {
	t.Helper()
	src, store := informertest.NewSource(objects(names...)...), informertest.NewDurable()
	oneRun(t, src, store, opts)
	return src, store.Reopen()
}

// begun starts an informer with one watcher, and does not wait until it has synced.
func begun(t *testing.T, lw cache.ListerWatcher, opts options) (inf *ci, r *recorder, stop func()) {
	t.Helper()
	inf, r = newInformer(t, lw, opts), &recorder{}
	addWatcher(t, inf, r, informer.WatcherOptions{})
	return inf, r, start(t, inf)
}

// joined adds a watcher to inf.
func joined(t *testing.T, inf *ci) *recorder {
	t.Helper()
	r := &recorder{}
	addWatcher(t, inf, r, informer.WatcherOptions{})
	return r
}

// checkTold fails the test unless want are the events of r. Those of an initial state come in no
// order, so want has them sorted.
func checkTold(t *testing.T, r *recorder, want ...string) {
	t.Helper()
	got := told(r)
	for from, to := 0, 0; from < len(got); from = to {
		for to = from; to < len(got) && kindOf(got[to]) == kindOf(got[from]); to++ {
		}
		if strings.HasPrefix(got[from], "initial ") {
			slices.Sort(got[from:to])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events of the watcher (-want +got):\n%s", diff)
	}
}

// kindOf returns an event, as told returns it, without its object.
func kindOf(told string) string { return told[:strings.LastIndex(told, " ")] }
