package prometheus_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
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

func TestValuesThatSayNothingAreLeftOut(t *testing.T) {
	full := informer.Health{Name: "i", Objects: 1, ResourceVersion: "1", LastList: time.Unix(1, 0), LastContact: time.Unix(1, 0), LastProgress: time.Unix(1, 0)}
	type lacks struct {
		missing string
		without func(*informer.Health)
	}
	tests := []lacks{
		{"informer_objects", func(h *informer.Health) { h.Objects = -1 }},
		{"informer_last_list_timestamp_seconds", func(h *informer.Health) { h.LastList = time.Time{} }},
		{"informer_last_contact_timestamp_seconds", func(h *informer.Health) { h.LastContact = time.Time{} }},
		{"informer_last_progress_timestamp_seconds", func(h *informer.Health) { h.LastProgress = time.Time{} }},
	}
	for _, version := range []string{"", "abc", "-1", "0x10", "1e9", "NaN", "Inf", strings.Repeat("9", 400)} {
		tests = append(tests, lacks{"informer_resource_version", func(h *informer.Health) { h.ResourceVersion = version }})
	}
	for _, test := range tests {
		lacking := full
		test.without(&lacking)
		for _, health := range [][]informer.MemberHealth{{lacking}, {full, lacking}, {lacking, full}} {
			all := scrape(t, registered(fixed(health...)))
			if _, ok := all[test.missing+`{informer="i"}`]; ok || len(all) != 22-1 {
				t.Errorf("with %+v there are %v", health, all)
			}
		}
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
	of(t, all, "informer_objects", values{"informer_objects{informer=\"a\uFFFDb\"}": 3})
	of(t, all, "event_lag_seconds_count", values{"informer_event_lag_seconds_count{informer=\"a\uFFFDb\"}": 6})
	of(t, all, "store_duration_seconds_count", values{"informer_store_duration_seconds_count{informer=\"a\uFFFDb\",op=\"get\"}": 3})
	of(t, all, "handling_seconds_count", values{"informer_watcher_handling_seconds_count{informer=\"a\uFFFDb\",watcher=\"w\uFFFD\"}": 6})
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
	registry := registered(prometheus.New(func() map[string]informer.MemberHealth { asked++; return nil }))
	for n := range 5 {
		if asked != n {
			t.Errorf("after %d scrapes it was asked %d times", n, asked)
		}
		scrape(t, registry)
	}
	defer func() {
		if recover() == nil {
			t.Error("New does not panic without a function")
		}
	}()
	prometheus.New(nil)
}
