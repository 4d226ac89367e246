package prometheus_test

import (
	"testing"

	"github.com/customcacheinformer/informer/internal/extremes"
)

func TestAUserSetsNoNumber(t *testing.T) {
	extremes.Run(t, extremes.Table{Untried: map[string]string{
		"prometheus.Workqueues.New": "the queue measures it",
	}}, "./...")
}
