package rules_test

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	step   = 30 * time.Second // time between two scrapes, and between two evaluations
	played = 2 * time.Hour
)

// recording holds scraped series.
type recording []storage.Series

// record reads series in the notation of Prometheus' tests: "1x9 0x20" is ten scrapes of 1 and
// then 21 of 0, "0+30x9" rises by 30 nine times, and "_x9" is nine scrapes without the series.
func record(t *testing.T, list metricList, series map[string]string) recording {
	t.Helper()
	for name, values := range series {
		metric, read, err := promQL.ParseSeriesDesc(name + " " + values)
		if err != nil {
			t.Fatalf("%s %s: %v", name, values, err)
		}
		_, has, exists := list.find(metric.Get(model.MetricNameLabel))
		for label := range metric.Map() {
			exists = exists && (label == model.MetricNameLabel || slices.Contains(has, label))
		}
		if !exists || metric.Len() != 1+len(has) {
			t.Fatalf("%s is not exported, or has other labels", name)
		}
		if want := int(played / step); len(read) < want {
			t.Fatalf("%s has %d values, want at least %d", name, len(read), want)
		}
	}
	return recordAny(t, series)
}

// recordAny reads series like record, also such that module metrics/prometheus does not export.
func recordAny(t *testing.T, series map[string]string) recording {
	t.Helper()
	var all recording
	for name, values := range series {
		metric, read, err := promQL.ParseSeriesDesc(name + " " + values)
		if err != nil {
			t.Fatalf("%s %s: %v", name, values, err)
		}
		chunk := chunkenc.NewXORChunk()
		appender, err := chunk.Appender()
		if err != nil {
			t.Fatal(err)
		}
		for i, value := range read {
			if !value.Omitted {
				appender.Append(0, (time.Duration(i) * step).Milliseconds(), value.Value)
			}
		}
		all = append(all, &storage.SeriesEntry{Lset: metric, SampleIteratorFn: chunk.Iterator})
	}
	return all
}

// Querier returns a querier of the recording. It makes recording a storage.Queryable.
func (r recording) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{}
		for _, series := range r {
			matches := func(m *labels.Matcher) bool { return m.Matches(series.Labels().Get(m.Name)) }
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !matches(m) }) {
				set.rest = append(set.rest, series)
			}
		}
		return set
	}}, nil
}

type seriesSet struct {
	at   storage.Series
	rest []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return s.at }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// firing is an alert that began to fire.
type firing struct {
	labels map[string]string
	at     time.Duration // since the first scrape
	value  float64
}

// evaluate returns the moment at which an alert begins to fire, for each of its label sets.
func evaluate(t *testing.T, engine *promql.Engine, alert rulefmt.Rule, seen recording) []firing {
	t.Helper()
	query, err := engine.NewRangeQuery(t.Context(), seen, nil, alert.Expr, time.Unix(0, 0), time.Unix(0, 0).Add(played), step)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if len(result.Warnings) > 0 {
		t.Errorf("%s: %v", alert.Alert, result.Warnings.AsErrors())
	}
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", alert.Alert, err)
	}
	var all []firing
	for _, series := range matrix {
		var since, last time.Duration
		for i, point := range series.Floats {
			at := time.Duration(point.T) * time.Millisecond
			if i == 0 || at-last > step {
				since = at
			}
			if last = at; at-since >= time.Duration(alert.For) {
				all = append(all, firing{series.Metric.Map(), at, point.F})
				break
			}
		}
	}
	return all
}

// checkTexts fails the test unless the annotations name what fails, and nothing else.
func checkTexts(t *testing.T, annotations map[string]string, f firing) {
	t.Helper()
	name, found := "", ""
	for label, failing := range map[string]string{"informer": "pod", "queue": "website", "set": "sites", "member": "mirror"} {
		if value := f.labels[label]; value != "" {
			name, found = failing, found+value
		}
	}
	if name == "" || found != name || f.labels["watcher"] != "" && f.labels["watcher"] != "queue" {
		t.Errorf("it fires for %v, which is healthy", f.labels)
	}
	for kind, text := range annotations {
		text = expand(t, text, f)
		if !strings.Contains(text, name) || !strings.Contains(text, f.labels["watcher"]) || strings.ContainsAny(text, "{}$<>") {
			t.Errorf("the %s reads %q", kind, text)
		}
		t.Logf("%s: %s", kind, text)
	}
}

// expand returns the text of an alert as people receive it.
func expand(t *testing.T, text string, f firing) string {
	t.Helper()
	data := template.AlertTemplateData(f.labels, nil, "", promql.Sample{F: f.value})
	noQuery := func(context.Context, string, time.Time) (promql.Vector, error) { return nil, nil }
	text = "{{$labels := .Labels}}{{$value := .Value}}" + text
	expanded, err := template.NewTemplateExpander(t.Context(), text, "alert", data, 0, noQuery, &url.URL{}, nil).Expand()
	if err != nil {
		t.Fatal(err)
	}
	return expanded
}

func newEngine(t *testing.T) *promql.Engine {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: promQL})
	t.Cleanup(func() { _ = engine.Close() })
	return engine
}

// healthy holds the series of informers, watchers, controllers and sets without problems. Their queues
// are never empty, and some events are retried, as are some keys.
var healthy = map[string]string{
	`informer_synced`:                           "1x240",
	`informer_watching`:                         "1x240",
	`informer_stopped`:                          "0x240",
	`informer_last_list_timestamp_seconds`:      "0x240",
	`informer_last_contact_timestamp_seconds`:   "0+30x240",
	`informer_last_progress_timestamp_seconds`:  "0+30x240",
	`informer_resource_version`:                 "1000+7x240",
	`informer_objects`:                          "100x240",
	`informer_memory_bytes`:                     "1000x240",
	`informer_memory_saved_bytes`:               "0x240",
	`informer_list_peak_bytes`:                  "1000x240",
	`informer_queued_changes`:                   "5x240",
	`informer_source_failures`:                  "0x240",
	`informer_store_failing`:                    "0x240",
	`informer_store_busy_seconds`:               "0.1x240",
	`informer_refused_changes_total`:            "0x240",
	`informer_foreign_objects_total`:            "0x240",
	`informer_decoded_objects_total`:            "0+5x240",
	`informer_undivided_answers_total`:          "0x240",
	`informer_undecodable_objects`:              "0x240",
	`informer_tombstones`:                       "0x240",
	`informer_store_info`:                       "1x240",
	`informer_watches_total{outcome="success"}`: "0+1x240",
	`informer_watches_total{outcome="expired"}`: "0x240",
	`informer_store_errors_total{op="update"}`:  "0+1x240",
	`informer_watcher_synced`:                   "1x240",
	`informer_watcher_pending`:                  "50x240",
	`informer_watcher_lagging`:                  "0x240",
	`informer_watcher_oldest_waiting_seconds`:   "20x240",
	`informer_watcher_delivered_total`:          "0+100x240",
	`informer_watcher_failed_total`:             "0x240",
	`informer_watcher_retried_total`:            "0+20x240",
	`informer_watcher_merged_total`:             "0+10x240",
	`informer_watcher_handling_seconds_sum`:     "0+25x240",
	`informer_watcher_handling_seconds_count`:   "0+100x240",

	`informer_reconcile_synced`:                         "1x240",
	`informer_reconcile_stopped`:                        "0x240",
	`informer_reconcile_standby`:                        "0x240",
	`informer_reconcile_workers`:                        "2x240",
	`informer_reconcile_busy`:                           "1x240",
	`informer_reconcile_longest_call_seconds`:           "2x240",
	`informer_reconcile_queued`:                         "50x240",
	`informer_reconcile_oldest_queued_seconds`:          "20x240",
	`informer_reconcile_failing`:                        "3x240",
	`informer_reconcile_longest_failing_seconds`:        "40x240",
	`informer_reconcile_last_success_timestamp_seconds`: "0+30x240",
	`informer_reconcile_deletes`:                        "4x240",
	`informer_reconcile_dropped_total`:                  "0x240",
	`informer_reconcile_total{outcome="success"}`:       "0+15x240",
	`informer_reconcile_total{outcome="error"}`:         "0+1x240",

	`informer_member_ready`:               "1x240",
	`informer_kinds_parked`:               "0x240",
	`informer_kinds_parked_seconds`:       "0x240",
	`informer_shards_joined`:              "1x240",
	`informer_shards_stopped`:             "0x240",
	`informer_shards_session`:             "1x240",
	`informer_shards_source_failures`:     "0x240",
	`informer_shards_replicas`:            "3x240",
	`informer_shards_buckets`:             "64x240",
	`informer_shards_owned`:               "21x240",
	`informer_shards_catching_up`:         "0x240",
	`informer_shards_catching_up_seconds`: "0x240",
	`informer_shards_unserved`:            "0x240",
	`informer_shards_unserved_seconds`:    "0x240",
	`informer_shards_draining`:            "0x240",
	`informer_shards_draining_seconds`:    "0x240",
	`informer_shards_unowned`:             "0x240",
	`informer_shards_unowned_seconds`:     "0x240",
	`informer_shards_taken_total`:         "21+1x240",
	`informer_shards_released_total`:      "0+1x240",
	`informer_shards_lost_sessions_total`: "0x240",
	`informer_shards_lost_calls`:          "0x240",
}

// program returns the series of a program with two informers, two controllers and two sets. The
// informer pod, with its watcher queue, the controller website and the set sites have the faults; the
// others are healthy.
func program(faults map[string]string) map[string]string {
	all := map[string]string{}
	for informer, names := range map[string]struct{ watcher, queue, set, member string }{"pod": {"queue", "website", "sites", "mirror"}, "node": {"log", "drain", "drains", "archive"}} {
		series := maps.Clone(healthy)
		if informer == "pod" {
			maps.Copy(series, faults)
		}
		for name, values := range series {
			name, own, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			more := []string{`job="operator"`, `instance="operator-0"`}
			switch {
			case strings.HasPrefix(name, "informer_reconcile_"):
				more = append(more, `queue="`+names.queue+`"`)
			case strings.HasPrefix(name, "informer_shards_"):
				more = append(more, `set="`+names.set+`"`)
			case strings.HasPrefix(name, "informer_member_"), strings.HasPrefix(name, "informer_kinds_"):
				more = append(more, `member="`+names.member+`"`)
			case strings.HasPrefix(name, "informer_watcher_"):
				more = append(more, `informer="`+informer+`"`, `watcher="`+names.watcher+`"`)
			default:
				more = append(more, `informer="`+informer+`"`)
			}
			if own != "" {
				more = append(more, own)
			}
			all[name+"{"+strings.Join(more, ",")+"}"] = values
		}
	}
	return all
}
