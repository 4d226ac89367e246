package chaos_test

import (
	"encoding/json"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/e2e/internal/stage"
)

const (
	writePause = 20 * time.Millisecond
	badWrites  = 100 // failures in a row that mean that something else is broken
)

// keepWriting writes objects of a kind until the test ends.
func (w *world) keepWriting(k *kind) {
	random := rand.New(rand.NewPCG(uint64(k.names), 2))
	for bad := 0; bad < badWrites && stage.Pass(w.ctx, writePause); {
		w.pause.RLock()
		err := w.write(k, random)
		w.pause.RUnlock()
		if err == nil || w.ctx.Err() != nil {
			bad = 0
			continue
		}
		if bad++; bad == badWrites {
			w.Errorf("nothing can be written to %s any more: %v", k.name, err)
		}
	}
}

// write creates an object, changes it, deletes it, or deletes it and creates it again,
// depending on chance and on whether it exists.
func (w *world) write(k *kind, random *rand.Rand) error {
	state := w.written.Add(1)
	obj := k.object(namespaces[random.IntN(len(namespaces))], random.IntN(k.names), state)
	client := w.client.Resource(k.resource()).Namespace(obj.GetNamespace())
	if random.IntN(4) == 0 {
		err := client.Delete(w.ctx, obj.GetName(), metav1.DeleteOptions{})
		if err == nil && random.IntN(2) == 0 {
			_, err = client.Create(w.ctx, obj, metav1.CreateOptions{})
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return w.put(k, obj)
}

// put creates an object, or changes it if it exists.
func (w *world) put(k *kind, obj object) error {
	client := w.client.Resource(k.resource()).Namespace(obj.GetNamespace())
	_, err := client.Create(w.ctx, obj, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": obj.GetAnnotations(), "labels": obj.GetLabels()},
		"spec":     obj.Object["spec"],
	})
	if err != nil {
		return err
	}
	_, err = client.Patch(w.ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
