package informertest

import (
	"errors"
	"fmt"

	"github.com/customcacheinformer/informer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// firstVersion is the resourceVersion of a source without any changes.
const firstVersion = 1000

// state holds the objects of a source and their history. Callers must hold the lock of the source.
type state[T informer.Object] struct {
	definition[T]
	version uint64
	objects map[types.NamespacedName]T // never changed in place
	uids    map[types.UID]bool         // all UIDs that were ever in use
	lastUID uint64                     // the number in the latest generated UID
	history history[T]
}

func (s *state[T]) named(obj T) T {
	const most = 63 - 5 // a server does not generate longer names than this, and the random characters
	base := obj.GetGenerateName()
	base = base[:min(len(base), most)]
	obj = copyOf(obj)
	for taken := true; taken; _, taken = s.objects[keyOf(obj)] {
		obj.SetName(base + rand.String(5))
	}
	return obj
}

// create stores a copy of obj, which must not exist yet.
func (s *state[T]) create(obj T) (T, error) {
	var none T
	if obj.GetName() == "" {
		return none, apierrors.NewInvalid(s.guessKind().GroupKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata", "name"), "every object has a name"),
		})
	}
	after := copyOf(obj)
	for uid := after.GetUID(); uid == "" || s.uids[uid]; uid = after.GetUID() {
		// The UID is not made from the resourceVersion, because Restore sets that back.
		s.lastUID++
		after.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.lastUID)))
	}
	s.uids[after.GetUID()] = true
	setGeneration(none, after)
	s.write(keyOf(obj), none, after)
	return copyOf(after), nil
}

func (s *state[T]) update(before, obj T) T {
	after := copyOf(obj)
	after.SetUID(before.GetUID())
	after.SetResourceVersion(before.GetResourceVersion())
	setGeneration(before, after)
	if sameJSON(before, after) {
		return copyOf(before) // a server does not see an empty map, or a part of a second
	}
	s.write(keyOf(obj), before, after)
	return copyOf(after)
}

// write makes the change from before to after, one of which may be the zero T. It gives the
// change, and after, the next resourceVersion.
func (s *state[T]) write(key types.NamespacedName, before, after T) {
	var none T
	s.version++
	if after == none {
		delete(s.objects, key)
	} else {
		after.SetResourceVersion(formatVersion(s.version))
		s.objects[key] = after
		s.learnType(after)
	}
	s.history.add(&entry[T]{kind: entryChange, version: s.version, key: key, before: before, after: after})
}

func (s *state[T]) checkVersion(before, obj T) error {
	if rv := obj.GetResourceVersion(); rv != "" && rv != before.GetResourceVersion() {
		return apierrors.NewConflict(s.resource(), obj.GetName(),
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

func (s *state[T]) delete(key types.NamespacedName, only *metav1.Preconditions) (T, error) {
	var none T
	before, exists := s.objects[key]
	switch {
	case !exists:
		return none, apierrors.NewNotFound(s.resource(), key.Name)
	case only == nil:
	case only.UID != nil && *only.UID != before.GetUID(), only.ResourceVersion != nil && *only.ResourceVersion != before.GetResourceVersion():
		return none, apierrors.NewConflict(s.resource(), key.Name, errors.New("the preconditions do not hold"))
	}
	s.write(key, before, none)
	return withVersion(before, s.version), nil
}

func (s *state[T]) compact() {
	s.version++
	s.history.forget(s.version)
}
