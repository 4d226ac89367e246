package enqueue

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Change reports whether an update, from old to new, is one that matters. It is called
// from the watcher's goroutine, must not change the objects, and should not block.
//
// A watcher of this package that is given several lets an update pass if any of them
// wants it, and without any every update passes, resyncs among them. What no Change can
// keep out is an object that is added or deleted, one that begins to be deleted, because
// who has a finalizer on it must act then, and an update that several were merged into
// ([informer.Event].Merged).
type Change func(old, new metav1.Object) bool

// Generation wants updates that change metadata.generation. The API server counts it up
// when the desired state of an object changes, in most kinds the spec, and not when
// status, labels or annotations do. Of kinds whose objects have no generation, such as
// ConfigMaps and Secrets, it wants every update but resyncs.
func Generation(old, new metav1.Object) bool {
	if new.GetGeneration() == 0 {
		return !Resync(old, new)
	}
	return old.GetGeneration() != new.GetGeneration()
}

// Labels wants updates that change metadata.labels.
func Labels(old, new metav1.Object) bool { return !maps.Equal(old.GetLabels(), new.GetLabels()) }

// Annotations wants updates that change metadata.annotations.
func Annotations(old, new metav1.Object) bool {
	return !maps.Equal(old.GetAnnotations(), new.GetAnnotations())
}

// Resync wants the updates that are no change at all, but the replay that
// WatcherOptions.ResyncPeriod asks for. With other Changes, which do not want them, it
// has all objects put into the queue from time to time.
func Resync(old, new metav1.Object) bool { return old == new }

func passes(changes []Change, old, new metav1.Object) bool {
	if len(changes) == 0 || old.GetDeletionTimestamp() == nil && new.GetDeletionTimestamp() != nil {
		return true
	}
	for _, wanted := range changes {
		if wanted(old, new) {
			return true
		}
	}
	return false
}
