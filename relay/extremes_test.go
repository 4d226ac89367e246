package relay_test

import (
	"testing"

	"github.com/customcacheinformer/informer/internal/extremes"
	"github.com/customcacheinformer/informer/relay"
)

func TestEachNumberWorksAtItsExtremesOrIsRefused(t *testing.T) {
	try := func(t *testing.T, changed relay.Options) error {
		opts := options(t)
		opts.MaxStaleness, opts.MinWatchTimeout, opts.MaxRequestsInFlight = changed.MaxStaleness, changed.MinWatchTimeout, changed.MaxRequestsInFlight
		return runBriefly(t, opts)
	}
	extremes.Run(t, extremes.Table{
		Trials: map[string]extremes.Trial{
			"relay.Options.MaxStaleness":        extremes.Field("-1 min", nil, try),
			"relay.Options.MinWatchTimeout":     extremes.Field("max -1 min", nil, try),
			"relay.Options.MaxRequestsInFlight": extremes.Field("max -1 min", nil, try),
		},
		Untried: map[string]string{
			"relay.Discover(upstream)":     "client-go checks its own configuration",
			"relay.Options.Upstream":       "client-go checks its own configuration",
			"relay.Options.Serving":        "k8s.io/apiserver checks its own options",
			"relay.Options.Authentication": "k8s.io/apiserver checks its own options",
			"relay.Options.Authorization":  "k8s.io/apiserver checks its own options",
		},
	}, ".")
}
