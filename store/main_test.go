package store_test

import (
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // see informertest.Main
	goleak.VerifyTestMain(m)
}
