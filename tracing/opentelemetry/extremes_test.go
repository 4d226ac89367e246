package opentelemetry_test

import (
	"testing"

	"github.com/customcacheinformer/informer/internal/extremes"
)

func TestAUserSetsNoNumber(t *testing.T) { extremes.Run(t, extremes.Table{}, "./...") }
