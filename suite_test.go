package informer_test

import (
	"github.com/customcacheinformer/informer/internal/testkit"
)

// Short names of the helpers that the test packages share.
type (
	ci         = testkit.Informer
	configMap  = testkit.ConfigMap
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
	ago           = testkit.Ago
	asked         = testkit.Asked
	checkStore    = testkit.CheckStore
	checkView     = testkit.CheckView
	eachQueue     = testkit.EachQueue
	fails         = testkit.ErrorIs
	forbidden     = testkit.Forbidden
	inBubble      = testkit.InBubble
	keyOf         = testkit.KeyOf
	newInformer   = testkit.NewInformer
	newPlainStore = testkit.NewPlainStore
	noError       = testkit.NoError
	object        = testkit.Object
	opened        = testkit.Opened
	quiet         = testkit.Ignore
	queues        = testkit.Queues
	runWith       = testkit.RunWith
	says          = testkit.ErrorContains
	sleepBubble   = testkit.SleepBubble
	sorted        = testkit.Sorted
	start         = testkit.Start
	startWith     = testkit.StartWith
	unreachable   = testkit.Unreachable
	watched       = testkit.Watched
	within        = testkit.Within
)
