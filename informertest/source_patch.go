package informertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
)

func (s *Source[T]) patch(action clienttesting.PatchActionImpl) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	key := types.NamespacedName{Namespace: action.Namespace, Name: action.Name}
	if err := s.patchable(action); err != nil {
		return none, err
	}
	before, exists := s.objects[key]
	if !exists {
		return none, apierrors.NewNotFound(s.resource(), key.Name)
	}
	after, err := patched(before, action)
	if err != nil {
		return none, err
	}
	if err := s.checkPatched(key, before, after); err != nil {
		return none, err
	}
	return s.update(before, after), nil
}

func (s *Source[T]) patchable(action clienttesting.PatchActionImpl) error {
	t := s.objectType()
	switch action.PatchType {
	case types.JSONPatchType, types.MergePatchType:
		return nil
	case types.StrategicMergePatchType:
		if _, builtin := builtinKind(t, s.kind); !builtin {
			return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, action.Verb, s.resource(), action.Name,
				"the body of the request was in an unknown format - accepted media types include: "+
					string(types.JSONPatchType)+", "+string(types.MergePatchType), 0, false)
		}
		if t != reflect.TypeFor[*unstructured.Unstructured]() {
			return nil
		}
	}
	return apierrors.NewMethodNotSupported(s.resource(), string(action.PatchType))
}

func patched[T informer.Object](before T, action clienttesting.PatchActionImpl) (T, error) {
	var none T
	if err := decodable(action); err != nil {
		return none, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	_, after, err := clienttesting.ObjectReaction(&patchTracker{before: before})(action)
	if u, ok := after.(*unstructured.Unstructured); ok && err == nil {
		// Its metadata may be anything, as far as client-go is concerned.
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &metav1.PartialObjectMetadata{})
	}
	switch {
	case err == nil:
		return after.(T), nil
	case slices.ContainsFunc(malformed, func(bad error) bool { return errors.Is(err, bad) }):
		return none, apierrors.NewBadRequest(err.Error())
	}
	return none, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), string(action.Patch), err.Error()),
	})
}

func decodable(action clienttesting.PatchActionImpl) error {
	if action.PatchType == types.JSONPatchType {
		return json.Unmarshal(action.Patch, &[]map[string]json.RawMessage{})
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(action.Patch, &fields); err != nil {
		return err
	}
	if fields == nil && action.PatchType == types.MergePatchType {
		return errors.New("it is null")
	}
	return nil
}

// malformed are the errors of a strategic merge patch for which an API server returns BadRequest.
var malformed = []error{
	mergepatch.ErrBadJSONDoc,
	mergepatch.ErrBadPatchFormatForPrimitiveList,
	mergepatch.ErrBadPatchFormatForRetainKeys,
	mergepatch.ErrBadPatchFormatForSetElementOrderList,
	mergepatch.ErrUnsupportedStrategicMergePatchFormat,
}

// patchTracker lets client-go apply a patch to one object. For that, client-go calls only Get and
// Patch.
type patchTracker struct {
	clienttesting.ObjectTracker
	before runtime.Object
}

// Get returns a copy, which client-go changes.
func (p *patchTracker) Get(schema.GroupVersionResource, string, string, ...metav1.GetOptions) (runtime.Object, error) {
	return p.before.DeepCopyObject(), nil
}

// Patch keeps nothing: client-go returns the object that it passes here.
func (p *patchTracker) Patch(schema.GroupVersionResource, runtime.Object, string, ...metav1.PatchOptions) error {
	return nil
}

// checkPatched returns an error if a patch must not change the object from before to after. It
// fills in metadata that a patch may leave out, and undoes changes that a server ignores.
func (s *Source[T]) checkPatched(key types.NamespacedName, before, after T) error {
	if name := after.GetName(); name != key.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, key.Name))
	}
	if after.GetNamespace() == "" {
		after.SetNamespace(key.Namespace)
	}
	if after.GetNamespace() != key.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if err := s.checkVersion(before, after); err != nil {
		return err
	}
	if _, builtin := builtinKind(reflect.TypeOf(before), before.GetObjectKind().GroupVersionKind()); !builtin && after.GetResourceVersion() == "" {
		return apierrors.NewInvalid(s.guessKind().GroupKind(), key.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	}
	kind := before.GetObjectKind().GroupVersionKind()
	if other := after.GetObjectKind().GroupVersionKind(); !kind.Empty() && !other.Empty() && other != kind {
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
			field.Invalid(field.NewPath("patch"), other.String(), "the object is a "+kind.String()),
		})
	}
	after.GetObjectKind().SetGroupVersionKind(kind)
	switch uid := after.GetUID(); uid {
	case "":
		after.SetUID(before.GetUID())
	case before.GetUID():
	default:
		return apierrors.NewInvalid(s.guessKind().GroupKind(), key.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable"),
		})
	}
	after.SetResourceVersion(before.GetResourceVersion())
	after.SetGeneration(before.GetGeneration()) // only a test may write one, and it does not patch
	return nil
}
