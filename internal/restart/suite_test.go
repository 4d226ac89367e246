package restart_test

import (
	"testing"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) { informertest.Main(m) }

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
	errDown       = testkit.ErrDown
	keyOf         = testkit.KeyOf
	newInformer   = testkit.NewInformer
	newPlainStore = testkit.NewPlainStore
	object        = testkit.Object
	oneRun        = testkit.OneRun
	sleepBubble   = testkit.SleepBubble
	small         = testkit.Small
	sorted        = testkit.Sorted
	start         = testkit.Start
	told          = testkit.Told
	versions      = testkit.Versions
	watched       = testkit.Watched
	within        = testkit.Within
)
