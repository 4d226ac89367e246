package rules_test

import (
	"errors"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
)

// readAlerts returns the rules of the file. Prometheus can load the file as it is.
func readAlerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	var all []rulefmt.Rule
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatal(alertsFile, "has no rules")
	}
	return all
}

func TestAlertsAskForMetricsThatAreExported(t *testing.T) {
	list := readList(t)
	for _, alert := range readAlerts(t) {
		if err := list.check(alert.Expr); err != nil {
			t.Errorf("%s: %v", alert.Alert, err)
		}
	}
}

func TestAlertsSayWhatToDo(t *testing.T) {
	seen := map[string]bool{}
	for _, alert := range readAlerts(t) {
		t.Run(alert.Alert, func(t *testing.T) {
			if seen[alert.Alert] || !strings.HasPrefix(alert.Alert, "Informer") {
				t.Error("the name is used twice, or does not begin with Informer")
			}
			seen[alert.Alert] = true
			if alert.For == 0 {
				t.Error("for is missing: one scrape is enough to fire")
			}
			if severity := alert.Labels["severity"]; len(alert.Labels) != 1 || severity != "warning" && severity != "critical" {
				t.Errorf("labels are %v, want a severity, warning or critical", alert.Labels)
			}
			if summary := alert.Annotations["summary"]; summary == "" || len(summary) > 120 || len(alert.Annotations) != 2 {
				t.Errorf("annotations are %v, want a short summary and a description", alert.Annotations)
			}
			if see := " See docs/operations.md#" + strings.ToLower(alert.Alert) + "."; !strings.HasSuffix(alert.Annotations["description"], see) {
				t.Errorf("the description does not end in %q", see)
			}
		})
	}
}

var labelInText = regexp.MustCompile(`\$labels\.(\w+)`)

func TestAlertsNameTheirInformerWatcherQueueOrSet(t *testing.T) {
	list := readList(t)
	for _, alert := range readAlerts(t) {
		has := list.result(t, alert.Expr)
		for _, name := range scraped {
			if !slices.Contains(has, name) {
				t.Errorf("%s: its labels do not name the process: %v", alert.Alert, has)
			}
		}
		for kind, text := range alert.Annotations {
			var named []string
			for _, found := range labelInText.FindAllStringSubmatch(text, -1) {
				if named = append(named, found[1]); !slices.Contains(has, found[1]) {
					t.Errorf("%s: its %s names %s, its labels are %v", alert.Alert, kind, found[1], has)
				}
			}
			for _, label := range []string{"informer", "watcher", "queue", "set", "member"} {
				if slices.Contains(has, label) && !slices.Contains(named, label) {
					t.Errorf("%s: its %s does not name the %s", alert.Alert, kind, label)
				}
			}
		}
	}
}

var alertLine = regexp.MustCompile(`(?m)^( *#.*)?\n *- alert: (\w+)$`)

func TestTheThresholdOfEveryAlertHasAReason(t *testing.T) {
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	found := alertLine.FindAllStringSubmatch(string(text), -1)
	if len(found) != len(readAlerts(t)) {
		t.Errorf("found %d alerts, want %d", len(found), len(readAlerts(t)))
	}
	for _, line := range found {
		if line[1] == "" {
			t.Errorf("%s: there is no comment above it", line[2])
		}
	}
}
