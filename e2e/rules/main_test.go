package rules_test

import (
	"testing"

	"go.uber.org/goleak"
)

const (
	readmeFile    = "../../metrics/prometheus/README.md"
	alertsFile    = "../../metrics/prometheus/alerts.yaml"
	dashboardFile = "../../metrics/prometheus/dashboard.json"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
