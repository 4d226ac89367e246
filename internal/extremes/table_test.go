package extremes_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/store/storetest"
)

func TestMain(m *testing.M) {
	// Two goroutines of a bubble that look at timers of no duration at the same moment crash the race detector
	// (golang/go#78156). The trials of durations of 0 and less have many of them.
	runtime.GOMAXPROCS(1)
	klog.SetLogger(klog.Logger{}) // most tests provoke errors
	informertest.Main(m)
}

// Short names of the helpers that the test packages share.
type (
	configMap = testkit.ConfigMap
	event     = testkit.Event
	options   = testkit.Options
	recorder  = testkit.Recorder
	source    = testkit.Source
)

const hour = testkit.Hour

var object = testkit.Object

func TestEachNumberWorksAtItsExtremesOrIsRefused(t *testing.T) {
	trials := map[string]extremes.Trial{
		// It runs subtests, which a bubble does not allow.
		"storetest.Options.Seed": extremes.Field("", nil, func(t *testing.T, opts storetest.Options) error {
			if testing.Short() && opts.Seed == 0 {
				t.Skip("this is the default")
			}
			storetest.Run(t, func(*testing.T) cache.Store { return cache.NewStore(cache.MetaNamespaceKeyFunc) }, opts)
			return nil
		}),
	}
	for _, part := range []map[string]extremes.Trial{informerTrials, controlTrials, sourceTrials} {
		maps.Copy(trials, part)
	}
	const (
		api    = "a part of an API object, which the informer only passes on"
		asks   = "the informer chooses it"
		theirs = "the reflector is the informer's own"
	)
	untried := map[string]string{
		"clusters.Config(kubeconfig)":         "any bytes, see FuzzConfig; more than MaxSize are an error",
		"clusters.Follower.":                  "the provider sets it",
		"clusters.Options.UID(config)":        "the provider sets it",
		"codec.Codec.Decode(encoded)":         "bytes that Encode has returned; others are an error, see FuzzDecode of store/disk",
		"informer.AnyObject.":                 api,
		"informer.Object.":                    api,
		"informer.Durable.Scan(limit)":        asks,
		"informer.DurableIndexer.Scan(limit)": asks,
		"storetest.DurableOptions.Seed":       "the same as of storetest.Options",
		"informer.ListWatch().":               asks,
		"informer.Client.":                    asks,
		"informer.UntypedClient.":             asks,
		"informertest.Source.FailIn(times)":   "the same as Fail",
		"shards.Set.Source().":                "each request is an error, see Set.Source",
		"informertest.Store.":                 "the same as StoreFaults",
		"informertest.Source.List(":           "the same as ListWithContext",
		"informertest.Source.Watch(":          "the same as WatchWithContext",
		"informer.ClientGo.NewSharedIndexInformer().SetWatchErrorHandler":         theirs,
		"informer.CustomCacheInformer.SharedIndexInformer().SetWatchErrorHandler": theirs,
		"clusters.Follow(source)(config).":                                        "a part of a kubeconfig, or a default of client-go",
		"clusters.NewClients(connect)(config).":                                   "a part of a kubeconfig, or a default of client-go",
		"clusters.Clients.":                                                       "the provider sets it",
		"informer.Clusters.SharedIndexInformer().":                                "it panics",
		"informer.ClusterSource.TweakListOptions(*v1.ListOptions).":               "the same as of informer.Options",
	}
	for _, of := range []string{
		"enqueue.Error.", "enqueue.Health.", "enqueue.KeyHealth.", "informer.ApplyInfo.", "informer.Event.",
		"informer.EventError.", "informer.ObjectError.", "informer.HandledInfo.", "informer.Health.", "informer.ListInfo.",
		"informer.BacklogInfo.", "informer.PanicError.", "informer.SourceVersions.", "informer.StoreError.",
		"informer.StoreInfo.", "informer.WatchInfo.", "informer.WatcherStats.", "informertest.Request.", "share.Stats.",
		"kinds.KindHealth.", "shards.Health.", "informer.SourceHealth.", "informer.DecodingHealth.",
		"informer.MemoryHealth.",
	} {
		untried[of] = "a figure that the library sets and users read"
	}
	extremes.Run(t, extremes.Table{Trials: trials, Untried: untried}, "../../...")
}

// The modules cannot import each other's tests, so each has a table of its own.
func TestEachPublishedModuleHasATable(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	testkit.Must(t, err)
	line := regexp.MustCompile(`(?m)^PUBLISHED := \. (.+)$`).FindSubmatch(makefile)
	if line == nil {
		t.Fatal("the Makefile does not list the published modules")
	}
	for _, module := range strings.Fields(string(line[1])) {
		tests, err := os.ReadFile(filepath.Join("../..", module, "extremes_test.go"))
		if err != nil || !strings.Contains(string(tests), "extremes.Run(t,") {
			t.Errorf("the extremes_test.go of module %s does not call extremes.Run (%v)", module, err)
		}
	}
}

// inBubble returns a function that calls try in a bubble.
func inBubble[V any](try func(t *testing.T, v V) error) func(t *testing.T, v V) error {
	return func(t *testing.T, v V) (err error) {
		synctest.Test(t, func(t *testing.T) { err = try(t, v) })
		return err
	}
}

// panics calls f, and returns the value of its panic as an error.
func panics(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v", v)
		}
	}()
	f()
	return nil
}
