package rules_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

var promQL = parser.NewParser(parser.Options{})

// check returns the mistakes in a query: series that are not exported, labels that a series
// does not have, and counters, gauges and histograms that are used as something else.
func (l metricList) check(query string) error {
	expr, err := promQL.ParseExpr(query)
	if err != nil {
		return err
	}
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			l.checkSeries(n, path, complain)
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				if !l.labels(n.Expr)[label] {
					complain("%s is grouped by %s, which it does not have", n.Expr, label)
				}
			}
		case *parser.BinaryExpr:
			if n.VectorMatching == nil {
				return nil
			}
			for _, label := range slices.Concat(n.VectorMatching.MatchingLabels, n.VectorMatching.Include) {
				if !l.labels(n.LHS)[label] && !l.labels(n.RHS)[label] {
					complain("%s matches on %s, which neither side has", n, label)
				}
			}
			if on := n.VectorMatching; !on.On && len(on.MatchingLabels) == 0 && !maps.Equal(l.labels(n.LHS), l.labels(n.RHS)) {
				complain("the sides of %s have different labels, so none matches", n)
			}
		case *parser.Call:
			if n.Func.Name == "histogram_quantile" && !l.labels(n.Args[1])["le"] {
				complain("%s has lost the label le", n)
			}
		}
		return nil
	})
	return errors.Join(wrong...)
}

func (l metricList) checkSeries(s *parser.VectorSelector, path []parser.Node, complain func(string, ...any)) {
	m, has, exists := l.find(s.Name)
	switch {
	case !exists:
		complain("%s is not exported", s.Name)
		return
	case m.kind == "histogram":
		complain("%s is a histogram, and has no series of that name", s.Name)
	}
	rated := false
	if len(path) > 1 {
		call, is := path[len(path)-2].(*parser.Call)
		rated = is && (call.Func.Name == "rate" || call.Func.Name == "increase")
	}
	if rated != (m.kind == "counter") {
		complain("%s is a %s, inside rate or increase: %t", s.Name, m.kind, rated)
	}
	for _, matcher := range s.LabelMatchers {
		switch {
		case matcher.Name == labels.MetricName:
		case !slices.Contains(has, matcher.Name):
			complain("%s has no label %s", s.Name, matcher.Name)
		case !strings.HasPrefix(matcher.Value, "$") && !l.words[matcher.Value]:
			complain("%s: the list has no value %s of %s", s.Name, matcher.Value, matcher.Name)
		}
	}
}

// labels returns the labels of the result of an expression.
func (l metricList) labels(expr parser.Expr) map[string]bool {
	set := map[string]bool{}
	switch e := expr.(type) {
	case *parser.VectorSelector:
		_, has, _ := l.find(e.Name)
		for _, label := range has {
			set[label] = true
		}
	case *parser.MatrixSelector:
		return l.labels(e.VectorSelector)
	case *parser.SubqueryExpr:
		return l.labels(e.Expr)
	case *parser.ParenExpr:
		return l.labels(e.Expr)
	case *parser.UnaryExpr:
		return l.labels(e.Expr)
	case *parser.AggregateExpr:
		if e.Without {
			set = l.labels(e.Expr)
		}
		for _, label := range e.Grouping {
			set[label] = !e.Without
		}
	case *parser.BinaryExpr:
		if set = l.labels(e.LHS); len(set) == 0 {
			set = l.labels(e.RHS)
		}
	case *parser.Call:
		for _, arg := range e.Args {
			maps.Copy(set, l.labels(arg))
		}
		set["le"] = set["le"] && e.Func.Name != "histogram_quantile"
	}
	maps.DeleteFunc(set, func(_ string, has bool) bool { return !has })
	return set
}

// result returns the labels of the result of a query, sorted.
func (l metricList) result(t *testing.T, query string) []string {
	t.Helper()
	expr, err := promQL.ParseExpr(query)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(l.labels(expr)))
}

func TestMistakesInQueriesAreFound(t *testing.T) {
	list := readList(t)
	for query, want := range map[string]string{
		`informer_synced == 0`:                                                                         "",
		`informer_syncd == 0`:                                                                          "is not exported",
		`informer_synced ==`:                                                                           "parse error",
		`informer_synced{watcher="x"}`:                                                                 "has no label watcher",
		`rate(informer_tombstones[5m])`:                                                                "is a gauge",
		`informer_refused_changes_total > 0`:                                                           "is a counter",
		`deriv(informer_refused_changes_total[5m])`:                                                    "is a counter",
		`rate(informer_list_duration_seconds_count[5m])`:                                               "",
		`rate(informer_list_duration_seconds[5m])`:                                                     "is a histogram",
		`informer_list_duration_seconds_bucket`:                                                        "is a counter",
		`rate(informer_lists_total_count[5m])`:                                                         "is not exported",
		`rate(informer_watches_total{outcome="expire"}[5m])`:                                           "no value expire",
		`sum by (informer, watcher) (rate(informer_lists_total[5m]))`:                                  "grouped by watcher",
		`sum by (outcome) (sum by (informer) (rate(informer_lists_total[5m])))`:                        "grouped by outcome",
		`sum by (op) (sum without (op) (rate(informer_store_errors_total[5m])))`:                       "grouped by op",
		`histogram_quantile(0.9, sum by (le) (rate(informer_list_duration_seconds_bucket[5m])))`:       "",
		`histogram_quantile(0.9, sum by (informer) (rate(informer_list_duration_seconds_bucket[5m])))`: "has lost the label le",
		`sum by (le) (rate(informer_list_duration_seconds_sum[5m]))`:                                   "grouped by le",
		`informer_watcher_synced and informer_synced`:                                                  "different labels",
		`informer_watcher_synced and ignoring (watcher) informer_synced`:                               "",
		`informer_watcher_synced and on (op) informer_synced`:                                          "matches on op",
		`time() - workqueue_depth{name=~"$x"}`:                                                         "",
	} {
		err := list.check(query)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}
