package enqueue

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Change reports whether an update of an object should put keys into the queue. before and after are
// the old and the new state of the object. Several goroutines may call a Change at once. A Change must
// not modify the objects, and should not block.
//
// A [Source] with several Changes lets an update pass if any of them returns true. Without a Change,
// every update passes. Some events always pass: added and deleted objects, resyncs, and updates that
// were merged from several ([informer.Event].Merged). Updates of an object that is being deleted also
// always pass, because each program that has put a finalizer on the object must act then.
type Change func(before, after metav1.Object) bool

// Generation is a [Change] that lets an update pass if metadata.generation has changed. The API server
// increases it when the desired state of an object changes (in most kinds the spec), but not when
// status, labels or annotations change. For kinds without a generation, such as ConfigMap and Secret,
// every update passes.
func Generation(before, after metav1.Object) bool {
	return after.GetGeneration() == 0 || before.GetGeneration() != after.GetGeneration()
}

// Labels is a [Change] that lets an update pass if metadata.labels has changed.
func Labels(before, after metav1.Object) bool {
	return !maps.Equal(before.GetLabels(), after.GetLabels())
}

// Annotations is a [Change] that lets an update pass if metadata.annotations has changed.
func Annotations(before, after metav1.Object) bool {
	return !maps.Equal(before.GetAnnotations(), after.GetAnnotations())
}

// passes reports whether an update passes, see [Change].
func passes(changes []Change, before, after metav1.Object) bool {
	if len(changes) == 0 || after.GetDeletionTimestamp() != nil {
		return true
	}
	for _, wanted := range changes {
		if wanted(before, after) {
			return true
		}
	}
	return false
}
