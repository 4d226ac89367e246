package debug_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/customcacheinformer/informer"
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
	equal         = testkit.Equal
	ignore        = testkit.Ignore
	must          = testkit.Must
	newInformer   = testkit.NewInformer
	newPlainStore = testkit.NewPlainStore
	noError       = testkit.NoError
	object        = testkit.Object
	opened        = testkit.Opened
	sleepBubble   = testkit.SleepBubble
	unreachable   = testkit.Unreachable
)

// stuck is a watcher whose calls end with the informer.
var stuck = informer.WatcherFunc[configMap](func(ctx context.Context, _ event) error { <-ctx.Done(); return nil })

// wantShown fails the test unless a page has each of the texts.
func wantShown(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %s", text)
		}
	}
}

// wantHidden fails the test if a page has one of the texts.
func wantHidden(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page has %s", text)
		}
	}
}

// summary returns the summary of a page as text.
func summary(shown string) string {
	_, text, _ := strings.Cut(shown, `<p id="summary" role="status"`)
	_, text, _ = strings.Cut(text, ">")
	text, _, _ = strings.Cut(text, "</p>")
	return regexp.MustCompile("<[^>]*>").ReplaceAllString(text, "")
}
