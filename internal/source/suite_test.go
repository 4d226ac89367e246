package source_test

import (
	"context"
	"testing"
	"time"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// Short names for the helpers that the test packages share.
type (
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
	asked       = testkit.Asked
	bothWays    = testkit.BothWays
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
	sleepBubble = testkit.SleepBubble
	start       = testkit.Start
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
