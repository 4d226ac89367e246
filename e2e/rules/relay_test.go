package rules_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
)

const relayAlertsFile = "../../relay/alerts.yaml"

// TestARelayThatHearsNothingFiresItsAlert plays a relay and a program next to it, whose informers
// both hear nothing for a while. Only the relay has a limit.
func TestARelayThatHearsNothingFiresItsAlert(t *testing.T) {
	groups, errs := rulefmt.ParseFile(relayAlertsFile, false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	alert := groups.Groups[0].Rules[0]
	const (
		relay   = `{job="relay",instance="relay-0",informer="pods"}`
		program = `{job="operator",instance="operator-0",informer="pods"}`
	)
	for name, test := range map[string]struct {
		contact, progress, failures string
		after                       time.Duration // since the last news; 0 for never
	}{
		"nothing is wrong":                      {"0+30x240", "0+30x240", "0x240", 0},
		"the API server is silent":              {"0+30x59 1770x181", "0+30x59 1770x181", "0x240", 3*time.Minute + step},
		"a bookmark comes after three minutes":  {"0+30x59 1770x5 1950+30x175", "0+30x59 1770x5 1950+30x175", "0x240", 0},
		"the API server is silent at the start": {"_x3 0x240", "_x240", "0x240", 3*time.Minute + step},
		"lists fail in the middle":              {"0+30x240", "0+30x59 1770x181", "0x59 1x181", 3*time.Minute + step},
		"a server sends no bookmarks":           {"0+30x240", "0+30x59 1770x181", "0x240", 0},
	} {
		t.Run(name, func(t *testing.T) {
			series := map[string]string{`relay_max_staleness_seconds{job="relay",instance="relay-0"}`: "120x240"}
			for _, labels := range []string{relay, program} {
				series["informer_last_contact_timestamp_seconds"+labels] = test.contact
				series["informer_last_progress_timestamp_seconds"+labels] = test.progress
				series["informer_source_failures"+labels] = test.failures
			}
			seen := recordAny(t, series)
			fired := evaluate(t, newEngine(t), alert, seen)
			if test.after == 0 {
				if len(fired) > 0 {
					t.Errorf("it fires: %v", fired)
				}
				return
			}
			if len(fired) != 1 || fired[0].labels["job"] != "relay" {
				t.Fatalf("fired: %v, want only that of the relay", fired)
			}
			last := time.Duration(0)
			if strings.Contains(test.progress, "1770") {
				last = 1770 * time.Second
			}
			if fired[0].at-last != test.after {
				t.Errorf("it fires %v after the last contact, want %v", fired[0].at-last, test.after)
			}
			for kind, text := range alert.Annotations {
				if text = expand(t, text, fired[0]); !strings.Contains(text, "pods") || strings.ContainsAny(text, "{}$<>") {
					t.Errorf("the %s reads %q", kind, text)
				}
				t.Logf("%s: %s", kind, text)
			}
		})
	}
}

// A resource that is not served has an alert of its own, and does not count as stale, too.
func TestAResourceThatARelayDoesNotServeFiresItsAlert(t *testing.T) {
	groups, errs := rulefmt.ParseFile(relayAlertsFile, false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	const labels = `{job="relay",instance="relay-0",informer="pods"}`
	seen := recordAny(t, map[string]string{
		`informer_last_contact_timestamp_seconds` + labels:            "0+30x59 1770x181",
		`relay_absent` + labels:                                       "0x59 1x181",
		`relay_max_staleness_seconds{job="relay",instance="relay-0"}`: "120x240",
	})
	for _, alert := range groups.Groups[0].Rules {
		fired := evaluate(t, newEngine(t), alert, seen)
		if want := map[string]int{"RelayAbsent": 1}[alert.Alert]; len(fired) != want {
			t.Errorf("%s: %v, want %d", alert.Alert, fired, want)
		}
	}
}
