package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	prom "github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/metrics/prometheus"
	"github.com/customcacheinformer/informer/shards"
)

// fixed returns the metrics of members with the given states.
func fixed(health ...informer.MemberHealth) *prometheus.Metrics {
	all := map[string]informer.MemberHealth{}
	for n, h := range health {
		all[fmt.Sprint("Pod#", n)] = h
	}
	return prometheus.New(func() map[string]informer.MemberHealth { return all })
}

// labelled expects these values of all series with labels. Names are without prefix.
func labelled(t *testing.T, all values, labels, prefix string, want values) {
	t.Helper()
	got := values{}
	for name, value := range all {
		if short, ok := strings.CutSuffix(name, labels); ok {
			got[strings.TrimPrefix(short, prefix)] = value
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", labels, diff)
	}
}

func TestWhatHasTheSameNameIsOneSeries(t *testing.T) {
	broken := errors.New("broken")
	early, late := time.Unix(1000, 500_000_000), time.Unix(2000, 0)
	a := informer.Health{
		Name: "i", Synced: true, Watching: true, Stopped: true, LastList: late, LastContact: early, LastProgress: late, ResourceVersion: "20",
		Objects: 3, Queued: 4, SourceFailures: 5, SourceWaiting: time.Second, StoreBusy: time.Second, Refused: 6, Foreign: 8, Tombstones: 7,
		Watchers: []informer.WatcherHealth{
			{WatcherStats: informer.WatcherStats{Name: "w", Synced: true, Pending: 1, Delivered: 2, Failed: 3, Retried: 4, Merged: 5, OldestWaiting: time.Second}},
			{WatcherStats: informer.WatcherStats{Name: "w", Synced: true, Pending: 10, Delivered: 20, Failed: 30, Retried: 40, Merged: 50, Lagging: true, OldestWaiting: time.Minute}},
			{WatcherStats: informer.WatcherStats{Name: "other", Synced: true}},
		},
	}
	b := informer.Health{
		Name: "i", Watching: true, LastList: early, LastContact: late, LastProgress: late, ResourceVersion: "9",
		Objects: 30, Queued: 40, SourceFailures: 50, SourceWaiting: time.Minute, StoreError: broken, StoreBusy: time.Minute, Refused: 60, Foreign: 80, Tombstones: 70,
		Watchers: []informer.WatcherHealth{{WatcherStats: informer.WatcherStats{Name: "w", Pending: 100, Delivered: 200, Failed: 300, Retried: 400, Merged: 500}}},
	}
	want := values{
		"synced": 0, "watching": 1, "stopped": 1, "last_list_timestamp_seconds": 1000.5, "last_contact_timestamp_seconds": 1000.5,
		"last_progress_timestamp_seconds": 2000, "resource_version": 9, "objects": 33, "queued_changes": 44, "source_failures": 55, "source_waiting_seconds": 60,
		"store_failing": 1, "store_busy_seconds": 60, "refused_changes_total": 66, "foreign_objects_total": 88, "tombstones": 77,
	}
	wantWatcher := values{
		"synced": 0, "pending": 111, "delivered_total": 222, "failed_total": 333, "retried_total": 444, "merged_total": 555,
		"lagging": 1, "oldest_waiting_seconds": 60,
	}
	for range 10 { // the order of a map differs each time
		all := scrape(t, registered(fixed(a, b, informer.Health{Name: "apart"})))
		labelled(t, all, `{informer="i"}`, "informer_", want)
		labelled(t, all, `{informer="i",watcher="w"}`, "informer_watcher_", wantWatcher)
		if n := len(having(all, `watcher="other"`)); n != 8 {
			t.Errorf("of the other watcher there are %d", n)
		}
	}
}

func TestTwoInformersAndTwoWatchersOfOneNameAreCountedTogether(t *testing.T) {
	bubble(t, []configMap{object("a", "1"), object("b", "1")}, func(r *rig, src *informertest.Source[configMap]) {
		one := r.add(src, options{})
		r.join(one, "w", ignore, watchOpts{})
		r.join(one, "w", ignore, watchOpts{})
		// Two members cannot have one name, but an informer that others run can have it, too.
		construct := informer.ClientGo{Group: r.group, Options: func(runtime.Object) (informer.Options[informer.AnyObject], error) {
			return informer.Options[informer.AnyObject]{Name: "i"}, nil
		}}.NewSharedIndexInformer
		other := construct(informertest.NewSource(object("c", "1")), &corev1.ConfigMap{}, 0, nil)
		ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
		stopped := make(chan struct{})
		go func() { other.RunWithContext(ctx); close(stopped) }()
		r.t.Cleanup(func() { stop(); <-stopped })
		settle(time.Minute)
		if all := r.group.Health(); len(all) != 2 {
			r.t.Errorf("in the group there are %v", all)
		}
		r.of(values{"objects": 3, "event_lag_seconds_count": 3})
		r.counted("events_total", values{`origin="initial",type="added"`: 3})
		r.ofWatcher(values{"delivered_total": 4, "handling_seconds_count": 4})
		if err := r.group.Remove(one); err != nil {
			r.t.Fatal(err)
		}
		r.of(values{"objects": 1})
	})
}

func TestValuesThatSayNothingAreLeftOut(t *testing.T) {
	full := informer.Health{Name: "i", Objects: 1, ResourceVersion: "1", LastList: time.Unix(1, 0), LastContact: time.Unix(1, 0), LastProgress: time.Unix(1, 0)}
	for _, test := range []struct {
		missing string
		without func(*informer.Health)
	}{
		{"informer_objects", func(h *informer.Health) { h.Objects = -1 }},
		{"informer_last_list_timestamp_seconds", func(h *informer.Health) { h.LastList = time.Time{} }},
		{"informer_last_contact_timestamp_seconds", func(h *informer.Health) { h.LastContact = time.Time{} }},
		{"informer_last_progress_timestamp_seconds", func(h *informer.Health) { h.LastProgress = time.Time{} }},
		{"informer_resource_version", func(h *informer.Health) { h.ResourceVersion = "" }},
		{"informer_resource_version", func(h *informer.Health) { h.ResourceVersion = "abc" }},
		{"informer_resource_version", func(h *informer.Health) { h.ResourceVersion = "-1" }},
		{"informer_resource_version", func(h *informer.Health) { h.ResourceVersion = "0x10" }},
		{"informer_resource_version", func(h *informer.Health) { h.ResourceVersion = "1e9" }},
		{"informer_resource_version", func(h *informer.Health) { h.ResourceVersion = "NaN" }},
		{"informer_resource_version", func(h *informer.Health) { h.ResourceVersion = "Inf" }},
		{"informer_resource_version", func(h *informer.Health) { h.ResourceVersion = strings.Repeat("9", 400) }},
	} {
		lacking := full
		test.without(&lacking)
		for _, health := range [][]informer.MemberHealth{{lacking}, {full, lacking}, {lacking, full}} {
			all := scrape(t, registered(fixed(health...)))
			if _, ok := all[test.missing+`{informer="i"}`]; ok || len(all) != 16-1 {
				t.Errorf("with %+v there are %v", health, all)
			}
		}
	}
}

func TestLargeVersionsAndOddTimesAreNumbers(t *testing.T) {
	far := time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)
	all := scrape(t, registered(fixed(informer.Health{Name: "i", ResourceVersion: "123456789012345678901234567890", LastList: far, LastContact: time.Unix(-5, 0)})))
	if got := all[`informer_resource_version{informer="i"}`]; got != 123456789012345678901234567890 {
		t.Errorf("the version is %v", got)
	}
	if got := all[`informer_last_list_timestamp_seconds{informer="i"}`]; got != float64(far.Unix()) {
		t.Errorf("the list was at %v", got)
	}
	if got := all[`informer_last_contact_timestamp_seconds{informer="i"}`]; got != -5 {
		t.Errorf("the contact was at %v", got)
	}
}

// hostile are names that a user should not choose.
var hostile = []string{
	"", " ", "\xff", "a\xffb", "\xff\xfe", "\x00", "quote\"", "back\\slash", "new\nline", "{informer=\"i\"}", "日本語",
	"\u202e", "\xed\xa0\x80", "\uFFFD", strings.Repeat("long", 1000),
}

func TestNoNameBreaksAScrape(t *testing.T) {
	for _, asked := range []bool{false, true} { // whether the names are in Health
		var health []informer.MemberHealth
		for _, name := range hostile {
			h := informer.Health{Name: name}
			for _, w := range hostile {
				h.Watchers = append(h.Watchers, informer.WatcherHealth{WatcherStats: informer.WatcherStats{Name: w, Delivered: 1}})
			}
			if asked {
				health = append(health, h, enqueue.Health{Name: name}, shards.Health{Name: name, Replica: name, Session: name})
			}
		}
		m := fixed(health...)
		o, registry := m.Observer(), registered(m)
		for range 2 {
			for _, name := range hostile {
				o.List(informer.ListInfo{Informer: name, Took: -time.Second, Err: errors.New("\xff")})
				o.Watch(informer.WatchInfo{Informer: name, Took: math.MaxInt64})
				o.Store(informer.StoreInfo{Informer: name, Op: name, Key: name, Took: math.MinInt64, Failures: -1})
				o.Apply(informer.ApplyInfo{Informer: name, Key: name, Type: informer.EventAdded})
				for _, w := range hostile {
					o.Handled(informer.HandledInfo{Informer: name, Watcher: w})
				}
			}
			all := scrape(t, registry)
			if asked != (len(all) > 0) {
				t.Errorf("there are %d series", len(all))
			}
			for _, name := range []string{"informer_reconcile_busy", "informer_shards_joined"} {
				if n := len(having(all, name)); asked && n != 12 { // four names are the same as valid UTF-8
					t.Errorf("%d series of %s", n, name)
				}
			}
		}
	}
}

func TestNamesThatAreNotUTF8AreShownAsFarAsTheyAre(t *testing.T) {
	m := fixed(
		informer.Health{Name: "a\xffb", Objects: 1, Watchers: []informer.WatcherHealth{{WatcherStats: informer.WatcherStats{Name: "w\xff"}}, {WatcherStats: informer.WatcherStats{Name: "w\xfe"}}}},
		informer.Health{Name: "a\uFFFDb", Objects: 2},
	)
	o, registry := m.Observer(), registered(m)
	for range 3 { // the second and third time after a scrape
		o.Apply(informer.ApplyInfo{Informer: "a\xffb", Type: informer.EventAdded})
		o.Apply(informer.ApplyInfo{Informer: "a\uFFFDb", Type: informer.EventAdded})
		o.Store(informer.StoreInfo{Informer: "a\xffb", Op: "get"})
		o.Handled(informer.HandledInfo{Informer: "a\xffb", Watcher: "w\xff"})
		o.Handled(informer.HandledInfo{Informer: "a\xfeb", Watcher: "w\xfe"})
		scrape(t, registry)
	}
	all := scrape(t, registry)
	want := values{
		"informer_objects{informer=\"a\uFFFDb\"}":                                            3,
		"informer_event_lag_seconds_count{informer=\"a\uFFFDb\"}":                            6,
		"informer_store_duration_seconds_count{informer=\"a\uFFFDb\",op=\"get\"}":            3,
		"informer_watcher_handling_seconds_count{informer=\"a\uFFFDb\",watcher=\"w\uFFFD\"}": 6,
	}
	for name, value := range want {
		if all[name] != value {
			t.Errorf("%s is %v, want %v", name, all[name], value)
		}
	}
}

func TestItFitsBehindAPrefixAndLabels(t *testing.T) {
	registry := prom.NewPedanticRegistry()
	m := fixed(informer.Health{Name: "i"})
	prom.WrapRegistererWith(prom.Labels{"cluster": "c"}, prom.WrapRegistererWithPrefix("my_", registry)).MustRegister(m)
	m.Observer().List(informer.ListInfo{Informer: "i"})
	all := scrape(t, registry)
	for _, name := range []string{"my_informer_synced", "my_informer_list_duration_seconds_count"} {
		if _, ok := all[name+`{cluster="c",informer="i"}`]; !ok {
			t.Errorf("there is no %s, but %v", name, having(all, name))
		}
	}
	if err := registry.Register(m); err != nil {
		t.Errorf("the same without prefix: %v", err)
	}
	if err := registry.Register(fixed()); err == nil {
		t.Error("metrics of the same names were registered twice")
	}
}

func TestHealthIsAskedOnceForEachScrape(t *testing.T) {
	asked := 0
	m := prometheus.New(func() map[string]informer.MemberHealth { asked++; return nil })
	registry := registered(m)
	if asked != 0 {
		t.Errorf("to register asks %d times", asked)
	}
	for n := range 5 {
		scrape(t, registry)
		if asked != n+1 {
			t.Errorf("after %d scrapes it was asked %d times", n+1, asked)
		}
	}
}

func TestNewPanicsWithoutAFunction(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it does not")
		}
	}()
	prometheus.New(nil)
}

func TestEachStoreOfAnInformerIsNamedOnce(t *testing.T) {
	all := scrape(t, registered(fixed(
		informer.Health{Name: "i", Store: "valkey a"}, informer.Health{Name: "i", Store: "valkey b\xff"}, informer.Health{Name: "i", Store: "valkey a"},
	)))
	got := having(all, "informer_store_info")
	want := []string{`informer_store_info{informer="i",store="valkey a"}`, "informer_store_info{informer=\"i\",store=\"valkey b\uFFFD\"}"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
