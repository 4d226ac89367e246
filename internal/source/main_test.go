package source_test

import (
	"testing"

	"github.com/customcacheinformer/informer/informertest"
)

func TestMain(m *testing.M) { informertest.Main(m) }
