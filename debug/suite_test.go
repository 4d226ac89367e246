package debug_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// Short names for the helpers that the test packages share.
type (
	configMap = testkit.ConfigMap
	event     = testkit.Event
	options   = testkit.Options
	recorder  = testkit.Recorder
)

var (
	addWatcher    = testkit.AddWatcher
	eachQueue     = testkit.EachQueue
	ignore        = testkit.Ignore
	newInformer   = testkit.NewInformer
	newPlainStore = testkit.NewPlainStore
	object        = testkit.Object
	opened        = testkit.Opened
	sleepBubble   = testkit.SleepBubble
	unreachable   = testkit.Unreachable
)

func summary(shown string) string {
	_, text, _ := strings.Cut(shown, `<p id="summary" role="status"`)
	_, text, _ = strings.Cut(text, ">")
	text, _, _ = strings.Cut(text, "</p>")
	return regexp.MustCompile("<[^>]*>").ReplaceAllString(text, "")
}
