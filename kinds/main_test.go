package kinds_test

import (
	"testing"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/informertest"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // most tests provoke errors
	informertest.Main(m)
}
