package informertest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/customcacheinformer/informer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
)

// firstVersion is the resourceVersion of a source in which nothing has happened.
const firstVersion = 1000

// Source is an API server for one resource, in memory. It is a
// [cache.ListerWatcher] and a [cache.ListerWatcherWithContext], to be given to
// whatever lists and watches, and it does what the Kubernetes API server does:
//
//   - Every write gets a resourceVersion of its own, deletes included, from one
//     counter; every object has a UID that no other object of the source ever had.
//   - A watch that starts at a resourceVersion delivers every change after it, in
//     order, each once. One that starts at none, or at "0", or asks for the
//     initial events, is first told of what there is. One that starts at a
//     resourceVersion to come is told of nothing until that is past.
//   - LIST is paginated, answers older versions, and refuses those to come.
//   - Label selectors work, and the field selectors metadata.name and
//     metadata.namespace. An object that a change brings into the selection of a
//     watch is added to it, one that a change takes out is deleted from it.
//   - Errors are those of the API server, of the type [apierrors.StatusError].
//
// An informer streams its first state, and then sends no LIST at all: to make
// it list, so that what goes wrong with a LIST is seen, let SetWatchList reject
// streams or turn them off in the informer's options.
//
// There is no admission, no defaulting and no garbage collection: a deleted
// object is gone at once, whatever its finalizers, and its generation and
// timestamps are what the test made them.
//
// Create, Update, Apply and Delete write. Get, Objects and ResourceVersion look
// at the state directly and are no requests. Requests, Watches and
// WaitForWatches tell what the readers of the source are doing.
//
// The other methods make something go wrong. Some do it once: Disconnect,
// Expire, Compact, Restore, Inject and Bookmark. Others stay until Heal: Fail,
// Mute, SlowList, HoldList, InjectListItem and OmitListVersion. SetWatchList and
// RefuseExpired say what kind of server it is; Heal leaves that alone.
//
// Any method may be called from any goroutine at any time. Only LIST, where
// SlowList or HoldList say so, and WaitForWatches block. Whatever goes in or
// comes out is a copy, so both sides may change what they have.
//
// A source runs a goroutine for each open watch and none of its own: there is
// nothing to close, as long as watches are stopped or their ctx ends. It takes
// time only from package time; to use it in a testing/synctest bubble, create it
// there. It keeps all changes until Compact or Expire, or Restore to before them.
type Source[T informer.Object] struct {
	mu      sync.Mutex
	version uint64
	objects map[types.NamespacedName]T // never changed in place
	uids    map[types.UID]bool         // all that were ever in use
	lastUID uint64                     // the number in the latest that was made
	kind    schema.GroupVersionKind    // of the first object that says its own
	goType  reflect.Type               // of the first object; T may be an interface

	history  history[T]
	open     map[*stream[T]]bool
	waiters  map[*waiter]bool
	requests []*Request
	faults   faults
}

var (
	_ cache.ListerWatcher            = (*Source[informer.AnyObject])(nil)
	_ cache.ListerWatcherWithContext = (*Source[informer.AnyObject])(nil)
)

// NewSource returns a source that holds copies of objs, created in that order.
// It panics if Create would fail for one of them, that is, if one has no name or
// two have the same.
//
// The kind of an *unstructured.Unstructured, and of whatever else does not imply
// it, is that of the first object that the source has had. Until then bookmarks
// have none, and a reflector that expects a certain kind ignores them and never
// syncs. If such a source is to be empty, create an object and delete it.
func NewSource[T informer.Object](objs ...T) *Source[T] {
	s := &Source[T]{
		version: firstVersion,
		objects: map[types.NamespacedName]T{},
		uids:    map[types.UID]bool{},
		history: newHistory[T](firstVersion),
		open:    map[*stream[T]]bool{},
		waiters: map[*waiter]bool{},
		faults:  newFaults(),
	}
	for _, obj := range objs {
		if _, err := s.Create(obj); err != nil {
			panic(fmt.Sprintf("informertest: NewSource: %v", err))
		}
	}
	return s
}

// Create adds a copy of obj and returns it as stored. It keeps the UID of obj,
// unless it has none or an object of this source has had it before, and ignores
// its resourceVersion. It does not block. The error is AlreadyExists, or Invalid
// if obj has no name.
func (s *Source[T]) Create(obj T) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.objects[keyOf(obj)]; exists {
		var none T
		return none, apierrors.NewAlreadyExists(s.resource(), obj.GetName())
	}
	return s.create(obj)
}

// Update replaces an object by a copy of obj and returns it as stored. Nothing
// is written, and no watch told, if that changes nothing, as with the API server.
// It does not block. The error is NotFound, or Conflict if obj has a UID or a
// resourceVersion that is not that of the stored object.
func (s *Source[T]) Update(obj T) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none T
	before, exists := s.objects[keyOf(obj)]
	if !exists {
		return none, apierrors.NewNotFound(s.resource(), obj.GetName())
	}
	if uid := obj.GetUID(); uid != "" && uid != before.GetUID() {
		return none, apierrors.NewConflict(s.resource(), obj.GetName(),
			fmt.Errorf("the UID is %s, not %s", before.GetUID(), uid))
	}
	if rv := obj.GetResourceVersion(); rv != "" && rv != before.GetResourceVersion() {
		return none, apierrors.NewConflict(s.resource(), obj.GetName(),
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return s.update(before, obj), nil
}

// Apply creates the object or updates it, whatever the UID and resourceVersion
// of obj, and returns it as stored. As with Update, nothing is written if that
// changes nothing. It does not block. It panics if obj has no name.
func (s *Source[T]) Apply(obj T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, exists := s.objects[keyOf(obj)]; exists {
		return s.update(before, obj)
	}
	created, err := s.create(obj)
	if err != nil {
		panic(fmt.Sprintf("informertest: Apply: %v", err))
	}
	return created
}

// Delete removes an object and returns its last state, with the resourceVersion
// of the deletion. It does not block. The error is NotFound.
func (s *Source[T]) Delete(key types.NamespacedName) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delete(key)
}

func (s *Source[T]) delete(key types.NamespacedName) (T, error) {
	var none T
	before, exists := s.objects[key]
	if !exists {
		return none, apierrors.NewNotFound(s.resource(), key.Name)
	}
	s.write(key, before, none)
	return withVersion(before, s.version), nil
}

// Get returns a copy of an object. It does not block. The error is NotFound.
func (s *Source[T]) Get(key types.NamespacedName) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, exists := s.objects[key]
	if !exists {
		var none T
		return none, apierrors.NewNotFound(s.resource(), key.Name)
	}
	return copyOf(obj), nil
}

// Objects returns copies of all objects, sorted by namespace and name. It does
// not block.
func (s *Source[T]) Objects() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	objs := make([]T, 0, len(s.objects))
	for _, key := range sortedKeys(s.objects) {
		objs = append(objs, copyOf(s.objects[key]))
	}
	return objs
}

// ResourceVersion returns the current resourceVersion, a decimal number: that of
// the last write, or a newer one after Compact and Expire, or the one of Restore. It
// does not block.
func (s *Source[T]) ResourceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return formatVersion(s.version)
}

// create stores a copy of obj, of which the source has none yet.
func (s *Source[T]) create(obj T) (T, error) {
	var none T
	if obj.GetName() == "" {
		return none, apierrors.NewInvalid(s.guessKind().GroupKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata", "name"), "every object has a name"),
		})
	}
	after := copyOf(obj)
	for uid := after.GetUID(); uid == "" || s.uids[uid]; uid = after.GetUID() {
		// Not the resourceVersion, which Restore brings back.
		s.lastUID++
		after.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.lastUID)))
	}
	s.uids[after.GetUID()] = true
	s.write(keyOf(obj), none, after)
	return copyOf(after), nil
}

// update replaces before by a copy of obj, if they differ.
func (s *Source[T]) update(before, obj T) T {
	after := copyOf(obj)
	after.SetUID(before.GetUID())
	after.SetResourceVersion(before.GetResourceVersion())
	if !reflect.DeepEqual(before, after) {
		s.write(keyOf(obj), before, after)
	}
	return copyOf(after)
}

// write makes the change from before to after, one of which may be the zero T,
// and gives it, and after, the next resourceVersion.
func (s *Source[T]) write(key types.NamespacedName, before, after T) {
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
