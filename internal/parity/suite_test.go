package parity_test

import (
	"testing"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// Short names of the helpers that the test packages share.
type (
	away      = testkit.Away
	configMap = testkit.ConfigMap
	errorLog  = testkit.ErrorLog
	options   = testkit.Options
	recorder  = testkit.Recorder
	source    = testkit.Source
)

const hour = testkit.Hour

var (
	addWatcher    = testkit.AddWatcher
	byValue       = testkit.ByValue
	byValueFunc   = testkit.ByValueFunc
	dialing       = testkit.Dialing
	eachQueue     = testkit.EachQueue
	keyOf         = testkit.KeyOf
	newInformer   = testkit.NewInformer
	newPlainStore = testkit.NewPlainStore
	object        = testkit.Object
	opened        = testkit.Opened
	sleepBubble   = testkit.SleepBubble
	sorted        = testkit.Sorted
	start         = testkit.Start
	unreachable   = testkit.Unreachable
	within        = testkit.Within
)
