package model_test

import (
	"testing"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// Short names of the helpers that the test packages share.
type (
	ci        = testkit.Informer
	configMap = testkit.ConfigMap
	durable   = testkit.Durable
	errorLog  = testkit.ErrorLog
	event     = testkit.Event
	options   = testkit.Options
	recorder  = testkit.Recorder
	source    = testkit.Source
)

const hour = testkit.Hour

var (
	asked       = testkit.Asked
	keyOf       = testkit.KeyOf
	object      = testkit.Object
	sleepBubble = testkit.SleepBubble
)
