package prometheus_test

import (
	"testing"

	"github.com/customcacheinformer/informer/internal/extremes"
)

func TestAUserSetsNoNumber(t *testing.T) {
	extremes.Run(t, extremes.Table{Untried: map[string]string{
		"prometheus.NewWorkqueues()": "client-go's queues set these numbers",
	}}, "./...")
}
