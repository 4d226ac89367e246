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
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
)

// firstVersion is the resourceVersion of a source without any changes.
const firstVersion = 1000

// Source is an API server for one resource, in memory. It is a [cache.ListerWatcher] and a
// [cache.ListerWatcherWithContext], for any code that lists and watches, and it behaves like
// the Kubernetes API server:
//
//   - Every write, deletes included, gets a resourceVersion of its own from one
//     counter; every object has a UID that no other object of the source ever had.
//   - A watch that starts at a resourceVersion delivers every change after it, in
//     order, each once. A watch that starts without a resourceVersion, at "0", or with a
//     request for the initial events delivers the existing objects first. A watch that
//     starts at a future resourceVersion delivers nothing until the source has passed it.
//   - LIST is paginated, answers older versions, and refuses future ones.
//   - Label selectors work, and the field selectors that Kubernetes has for the type of the
//     objects, such as spec.nodeName for Pods. SetSelectableFields adds those of a custom
//     resource. Other fields are a BadRequest. An object that a change brings into the
//     selection of a watch is added to it; an object that a change takes out is deleted from it.
//   - Errors are those of the API server, of the type [apierrors.StatusError].
//
// An informer streams its first state, and sends no LIST while its requests succeed. After a
// request that has failed it asks for one object (a LIST with limit 1), and may list. Those
// requests count like any other, also for Fail. To test faults of a
// LIST, make the informer list: let SetWatchList reject streams, or turn streams off in the
// informer's options.
//
// The generation of an object is 1 at first, and rises when anything except metadata and status
// changes and when a deletionTimestamp is set; that of a Deployment also when its annotations
// change. Objects of the kinds of Kubernetes that have no generation, such as ConfigMaps,
// Secrets, Services and Nodes, have none here. A test may write a generation of its own: it is
// kept if it is higher than the one that the source would give, and ignored otherwise.
//
// There is no admission, no defaulting and no garbage collection. A deleted object is gone at
// once, whatever its finalizers are. The test sets an object's timestamps itself.
//
// Create, Update, Apply and Delete write. Get, Objects and ResourceVersion read the state
// directly and do not count as requests. Requests, Watches and WaitForWatches tell what the
// readers of the source are doing.
//
// The other methods make something go wrong. Some act once: Disconnect, Expire, Compact,
// Restore, Inject and Bookmark. Others last until Heal: Down, Fail, Mute, SlowList, HoldList,
// InjectListItem and OmitListVersion. NamespaceClient.Fail does the same as Fail for one namespace.
// SetWatchList, RefuseExpired and SetSelectableFields choose the kind of server, which Heal does
// not change.
//
// Any method may be called from any goroutine at any time. Only LIST, because of SlowList or
// HoldList, and WaitForWatches block. All objects passed in or returned are copied, so both
// sides may change theirs.
//
// A source runs one goroutine for each open watch and no others. It needs no Close, as long as
// watches are stopped or their ctx ends. It takes time only from package time; to use it in a
// testing/synctest bubble, create it there. It keeps all changes until Compact or Expire drops
// them, or until Restore goes back to before them.
type Source[T informer.Object] struct {
	mu      sync.Mutex
	version uint64
	objects map[types.NamespacedName]T // never changed in place
	uids    map[types.UID]bool         // all UIDs that were ever in use
	lastUID uint64                     // the number in the latest generated UID
	kind    schema.GroupVersionKind    // of the first object that has one
	goType  reflect.Type               // of the first object; T may be an interface

	customFields selectables // of SetSelectableFields

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

// NewSource returns a source that holds copies of objs, created in that order. It panics if
// Create would fail for one of them, that is, if one has neither a name nor a generateName, or two
// have the same name.
//
// An *unstructured.Unstructured, like every type that does not imply its kind, has the kind of
// the first object of the source. Until there is an object, bookmarks have no kind, and a
// reflector that expects a certain kind ignores them and never syncs; field selectors know only
// metadata.name and metadata.namespace. If such a source should be empty, create an object and
// delete it. Objects of type *metav1.PartialObjectMetadata have no other fields, whatever their
// kind is.
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

// Create adds a copy of obj and returns it as stored. It keeps the UID of obj, unless the UID
// is empty or an object of this source has had it before. It ignores the resourceVersion of
// obj. If obj has a generateName and no name, Create makes a name that no other object has: the
// generateName, cut off after 58 bytes, and five random characters. It does not block. The error is
// AlreadyExists, or Invalid if obj has neither a name nor a generateName.
func (s *Source[T]) Create(obj T) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj = s.named(obj)
	}
	if _, exists := s.objects[keyOf(obj)]; exists {
		var none T
		return none, apierrors.NewAlreadyExists(s.resource(), obj.GetName())
	}
	return s.create(obj)
}

// Update replaces an object by a copy of obj and returns it as stored. As with the API server,
// an update without a difference writes nothing and sends nothing to watches. It does not
// block. The error is NotFound, or Conflict if obj has another UID or resourceVersion than the
// stored object.
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
	if err := s.checkVersion(before, obj); err != nil {
		return none, err
	}
	return s.update(before, obj), nil
}

// checkVersion returns a Conflict if obj was made from another version than before.
func (s *Source[T]) checkVersion(before, obj T) error {
	if rv := obj.GetResourceVersion(); rv != "" && rv != before.GetResourceVersion() {
		return apierrors.NewConflict(s.resource(), obj.GetName(),
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// Apply creates the object or updates it, whatever the UID and resourceVersion of obj, and
// returns it as stored. As with Update, an update without a difference writes nothing. It does
// not block. It panics if obj has no name; it generates none.
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

// ResourceVersion returns the current resourceVersion, a decimal number: that of the last
// write, a newer one after Compact and Expire, or the one of Restore. It does not block.
func (s *Source[T]) ResourceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return formatVersion(s.version)
}

// named returns a copy of obj with a name of its own that begins with its generateName.
func (s *Source[T]) named(obj T) T {
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
func (s *Source[T]) create(obj T) (T, error) {
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

// update replaces before by a copy of obj, if they differ.
func (s *Source[T]) update(before, obj T) T {
	after := copyOf(obj)
	after.SetUID(before.GetUID())
	after.SetResourceVersion(before.GetResourceVersion())
	setGeneration(before, after)
	if !reflect.DeepEqual(before, after) {
		s.write(keyOf(obj), before, after)
	}
	return copyOf(after)
}

// write makes the change from before to after, one of which may be the zero T. It gives the
// change, and after, the next resourceVersion.
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
