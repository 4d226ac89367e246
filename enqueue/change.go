package enqueue

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Change reports whether an update, from old to new, matters. It is called from the watcher's
// goroutine, must not change the objects, and should not block.
//
// A watcher of this package that has several Changes lets an update pass if any of them wants
// it. Without a Change it lets every update pass, resyncs included. No Change can keep out an
// added or deleted object, an object whose deletion begins (the owner of a finalizer must act
// then), or an update that several updates were merged into ([informer.Event].Merged).
type Change func(old, new metav1.Object) bool

// Generation wants updates that change metadata.generation. The API server increases it when
// the desired state of an object changes (in most kinds the spec), and not when status, labels
// or annotations change. If a kind has no generation, such as ConfigMap and Secret, Generation
// wants every update except resyncs.
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

// Resync wants only the updates that change nothing: the replay that
// WatcherOptions.ResyncPeriod asks for. Add it to other Changes, which do not want resyncs, to
// have all objects put into the queue from time to time.
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
