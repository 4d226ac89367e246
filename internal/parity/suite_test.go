package parity_test

import (
	"testing"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// Short names of the helpers that the test packages share.
type (
	configMap = testkit.ConfigMap
	errorLog  = testkit.ErrorLog
	options   = testkit.Options
	source    = testkit.Source
)

const hour = testkit.Hour

var (
	byValue     = testkit.ByValue
	byValueFunc = testkit.ByValueFunc
	equal       = testkit.Equal
	inBubble    = testkit.InBubble
	keyOf       = testkit.KeyOf
	must        = testkit.Must
	noError     = testkit.NoError
	object      = testkit.Object
	sleepBubble = testkit.SleepBubble
	sorted      = testkit.Sorted
	within      = testkit.Within
)
