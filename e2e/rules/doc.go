// Package rules contains only tests. They read the alerts and the dashboard of module
// metrics/prometheus with Prometheus' own parser, compare them with the list of metrics in its
// README, and play outages to the alerts in Prometheus' own engine.
package rules
