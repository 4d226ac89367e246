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
	eachQueueOf   = testkit.EachQueueOf
	errorIf       = testkit.ErrorIf
	failOn        = testkit.FailOn
	fails         = testkit.ErrorIs
	forbidden     = testkit.Forbidden
	inBubble      = testkit.InBubble
	keyOf         = testkit.KeyOf
	longOrShort   = testkit.LongOrShort
	newInformer   = testkit.NewInformer
	newPlainStore = testkit.NewPlainStore
	noError       = testkit.NoError
	object        = testkit.Object
	opened        = testkit.Opened
	quiet         = testkit.Ignore
	queues        = testkit.Queues
	runWith       = testkit.RunWith
	running       = testkit.Running
	says          = testkit.ErrorContains
	sleepBubble   = testkit.SleepBubble
	sorted        = testkit.Sorted
	start         = testkit.Start
	startWith     = testkit.StartWith
	took          = testkit.Took
	unreachable   = testkit.Unreachable
	valueOf       = testkit.Value
	watched       = testkit.Watched
	within        = testkit.Within
)
