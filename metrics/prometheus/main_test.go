package prometheus_test

import (
	"io"
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // see informertest.Main
	klog.LogToStderr(false)                                   // errors are what most tests are about
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}
