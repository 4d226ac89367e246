package serving

import (
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"
)

// The watch cache asks a global variable whether the storage can report its progress, and refuses
// watches with initial events if it cannot. The variable learns the answer only from etcd clients. So
// init sets it to yes, while packages are initialized, because API servers of the same process read
// it without a lock. That does no harm to them: every etcd since 3.5.13 has the feature.
func init() {
	feature.DefaultFeatureSupportChecker = progressSupported{feature.DefaultFeatureSupportChecker}
}

type progressSupported struct{ feature.FeatureSupportChecker }

func (c progressSupported) Supports(f storage.Feature) bool {
	return f == storage.RequestWatchProgress || c.FeatureSupportChecker.Supports(f)
}
