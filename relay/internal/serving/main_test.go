package serving

import (
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // most tests provoke errors
	err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.ShardedListAndWatch): true})
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m,
		// A read that waited for a version leaves a timer of 3 s.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"))
}
