package rules_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metric describes one metric of the list.
type metric struct {
	kind   string // gauge, counter or histogram
	labels []string
}

// metricList holds the listed metrics by name. words holds every word of the text; the value
// that a query compares a label with must be one of them.
type metricList struct {
	metrics map[string]metric
	words   map[string]bool
}

// scraped holds the labels that every scrape adds.
var scraped = []string{"job", "instance"}

// workqueues holds the metrics that programs export of client-go's workqueues.
var workqueues = map[string]metric{
	"workqueue_depth":                             {"gauge", []string{"name"}},
	"workqueue_adds_total":                        {"counter", []string{"name"}},
	"workqueue_queue_duration_seconds":            {"histogram", []string{"name"}},
	"workqueue_work_duration_seconds":             {"histogram", []string{"name"}},
	"workqueue_unfinished_work_seconds":           {"gauge", []string{"name"}},
	"workqueue_longest_running_processor_seconds": {"gauge", []string{"name"}},
	"workqueue_retries_total":                     {"counter", []string{"name"}},
}

var (
	metricName = regexp.MustCompile(`\binformer_[a-z_]+`)
	metricKind = regexp.MustCompile(`\b(gauge|counter|histogram)\b`)
	metricWord = regexp.MustCompile(`[a-z_]+`)
	ownLabels  = []string{"informer", "watcher", "queue", "set", "member", "type", "origin", "op", "outcome"}
)

// readList reads the metrics from the tables of the README. The name is in the first column,
// the type and the labels are in others.
func readList(t *testing.T) metricList {
	t.Helper()
	text, err := os.ReadFile(readmeFile)
	if err != nil {
		t.Fatal(err)
	}
	list := metricList{metrics: maps.Clone(workqueues), words: map[string]bool{}}
	for _, word := range metricWord.FindAllString(string(text), -1) {
		list.words[word] = true
	}
	labelsColumn := -1
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") {
			continue
		}
		name := metricName.FindString(cells[0])
		if name == "" {
			at := slices.IndexFunc(cells, func(cell string) bool { return strings.EqualFold(strings.Trim(cell, " `"), "labels") })
			if at > 0 {
				labelsColumn = at
			}
			continue
		}
		m := metric{kind: metricKind.FindString(strings.ToLower(strings.Join(cells[1:], " ")))}
		if labelsColumn < 0 || labelsColumn >= len(cells) || m.kind == "" {
			t.Fatalf("%s: the row of %s has no type, or no column of labels", readmeFile, name)
		}
		for _, word := range metricWord.FindAllString(cells[labelsColumn], -1) {
			if slices.Contains(ownLabels, word) && !slices.Contains(m.labels, word) {
				m.labels = append(m.labels, word)
			}
		}
		list.metrics[name] = m
	}
	return list
}

// find returns the metric that a series belongs to, and the labels of the series.
func (l metricList) find(series string) (m metric, labels []string, exists bool) {
	if m, exists := l.metrics[series]; exists {
		return m, slices.Concat(m.labels, scraped), true
	}
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		name, is := strings.CutSuffix(series, suffix)
		if m := l.metrics[name]; is && m.kind == "histogram" {
			labels := slices.Concat(m.labels, scraped)
			if suffix == "_bucket" {
				labels = append(labels, "le")
			}
			return metric{"counter", m.labels}, labels, true
		}
	}
	return metric{}, nil, false
}

func TestTheListHasAllMetrics(t *testing.T) {
	list := readList(t)
	for name, want := range map[string]metric{
		"informer_synced":                 {"gauge", []string{"informer"}},
		"informer_tombstones":             {"gauge", []string{"informer"}},
		"informer_watcher_failed_total":   {"counter", []string{"informer", "watcher"}},
		"informer_watches_total":          {"counter", []string{"informer", "outcome"}},
		"informer_store_duration_seconds": {"histogram", []string{"informer", "op"}},
		"informer_reconcile_queued":       {"gauge", []string{"queue"}},
		"informer_reconcile_total":        {"counter", []string{"outcome", "queue"}},
		"informer_shards_unowned_seconds": {"gauge", []string{"set"}},
		"informer_shards_taken_total":     {"counter", []string{"set"}},
	} {
		got := list.metrics[name]
		slices.Sort(got.labels)
		if got.kind != want.kind || !slices.Equal(got.labels, want.labels) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
