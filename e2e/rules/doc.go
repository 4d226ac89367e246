// Package rules has no code. Its tests read the alerts and the dashboard of module
// metrics/prometheus with Prometheus' own parser, hold them against the list of metrics
// in its README, and play outages to the alerts in Prometheus' own engine.
package rules
