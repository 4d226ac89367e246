package source_test

import (
	"context"
	"time"

	"github.com/customcacheinformer/informer/internal/testkit"
)

// Short names for the helpers that the test packages share.
type (
	away       = testkit.Away
	configMap  = testkit.ConfigMap
	errorLog   = testkit.ErrorLog
	event      = testkit.Event
	fakeSource = testkit.Source
	options    = testkit.Options
	recorder   = testkit.Recorder
)

const hour = testkit.Hour

var (
	addWatcher  = testkit.AddWatcher
	ago         = testkit.Ago
	asked       = testkit.Asked
	bothWays    = testkit.BothWays
	checkKept   = testkit.CheckKept
	checkStore  = testkit.CheckStore
	checkView   = testkit.CheckView
	dialing     = testkit.Dialing
	eachQueue   = testkit.EachQueue
	errDown     = testkit.ErrDown
	forbidden   = testkit.Forbidden
	ignore      = testkit.Ignore
	keyOf       = testkit.KeyOf
	newInformer = testkit.NewInformer
	object      = testkit.Object
	oneRun      = testkit.OneRun
	opened      = testkit.Opened
	queues      = testkit.Queues
	runWith     = testkit.RunWith
	sleepBubble = testkit.SleepBubble
	small       = testkit.Small
	start       = testkit.Start
	startWith   = testkit.StartWith
	watched     = testkit.Watched
	within      = testkit.Within
)

// must returns v, and panics if err is not nil.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func sleepUntil(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
