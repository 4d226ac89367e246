package enqueue

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Change reports whether the update from before to after matters. It is called from the
// watcher's goroutine, must not change the objects, and should not block.
//
// A [Source] that has several Changes lets an update pass if any of them wants it. Without a Change it
// lets every update pass. No Change can keep out an added or deleted object, a resync, an update of an
// object that is being deleted (the owners of its finalizers must act then, one after the other), or an
// update that several updates were merged into ([informer.Event].Merged).
type Change func(before, after metav1.Object) bool

// Generation is a [Change] that wants updates of metadata.generation. The API server increases it when
// the desired state of an object changes (in most kinds the spec), and not when status, labels
// or annotations change. If a kind has no generation, such as ConfigMap and Secret, Generation
// wants every update.
func Generation(before, after metav1.Object) bool {
	return after.GetGeneration() == 0 || before.GetGeneration() != after.GetGeneration()
}

// Labels is a [Change] that wants updates of metadata.labels.
func Labels(before, after metav1.Object) bool {
	return !maps.Equal(before.GetLabels(), after.GetLabels())
}

// Annotations is a [Change] that wants updates of metadata.annotations.
func Annotations(before, after metav1.Object) bool {
	return !maps.Equal(before.GetAnnotations(), after.GetAnnotations())
}

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
