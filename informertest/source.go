package informertest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/customcacheinformer/informer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Source is an API server for one resource, in memory. It is a [cache.ListerWatcher] and a
// [cache.ListerWatcherWithContext], for any code that lists and watches, and it behaves like
// the Kubernetes API server:
//
//   - Every write, including a delete, gets its own resourceVersion from one counter. Every object
//     has a UID that no other object of the source ever had.
//   - A watch that starts at a resourceVersion delivers every change after it once, in order. A
//     watch that starts without a resourceVersion, at "0", or with a request for the initial events
//     delivers the existing objects first. A watch that starts at a future resourceVersion delivers
//     nothing until the source has passed that version.
//   - A LIST can be read in pages. It can ask for the state at an older resourceVersion, but not at
//     a future one.
//   - Label selectors work, and the field selectors that Kubernetes has for the type of the
//     objects, such as spec.nodeName for Pods. SetSelectableFields adds those of a custom resource.
//     For other fields the answer is BadRequest. If a change brings an object into the selection of
//     a watch, the watch gets ADDED; if a change takes it out, the watch gets DELETED.
//   - Errors are those of the API server, of the type [apierrors.StatusError].
//
// An informer gets its first objects from a watch (a streaming list), and sends no LIST while its
// requests succeed. After a failed request it sends a LIST with limit 1, and then perhaps a LIST of
// all objects. These requests count like any other, also for Fail. To test faults of a LIST, make
// the informer list: set [Faults].RejectWatchList, or turn streams off in the informer's options.
//
// The generation of an object is 1 at first. It rises when anything except metadata and status
// changes, and when a deletionTimestamp is set. For a Deployment it also rises when the annotations
// change. Built-in kinds that have no generation in Kubernetes, such as ConfigMaps, Secrets,
// Services and Nodes, have none here either. A test may write a generation of its own. The source
// keeps it if it is higher than the generation that the source would set, and ignores it otherwise.
//
// There is no admission, no defaulting and no garbage collection. A deleted object is gone at
// once, whatever its finalizers are. The test sets an object's timestamps itself.
//
// Create, Update, Apply and Delete write. Get, Objects and ResourceVersion read the state
// directly and do not count as requests. Requests, Watches and WaitForWatches show what the
// readers of the source are doing.
//
// The other methods cause faults and other events. Disconnect, Expire, Compact, Restore, Inject and
// Bookmark act once. Fail and FailIn act on the next requests. The [Faults] that SetFaults sets
// last until the next call of SetFaults or Heal.
//
// Any method may be called from any goroutine at any time. Only WaitForWatches blocks, and a LIST
// if HoldLists or ListDelay is set. Objects passed in or returned are copied, so both sides may
// change theirs. Only the objects of Inject and of Faults.ListItems are not copied.
//
// A source runs one goroutine for each open watch and no others. It needs no Close, as long as
// watches are stopped or their ctx ends. To use it in a testing/synctest bubble, create it
// there. It keeps all changes until Compact or Expire drops them, or Restore undoes them.
type Source[T informer.Object] struct {
	mu sync.Mutex
	state[T]
	readers
	faults faults
}

var (
	_ cache.ListerWatcher            = (*Source[informer.AnyObject])(nil)
	_ cache.ListerWatcherWithContext = (*Source[informer.AnyObject])(nil)
)

// NewSource returns a source that holds copies of objs, created in that order. It panics if Create
// would fail for one of them, that is, if one has neither a name nor a generateName, or two have
// the same namespace and name.
//
// A type such as *unstructured.Unstructured does not imply a kind. The source then takes the kind
// from its first object that has one. Until then, field selectors support only metadata.name and
// metadata.namespace, and bookmarks have no kind. A reflector that expects a certain kind ignores
// such bookmarks and never syncs. To start such a source empty, create an object and delete it.
// For *metav1.PartialObjectMetadata, field selectors never support other fields than these two.
func NewSource[T informer.Object](objs ...T) *Source[T] {
	s := &Source[T]{
		state: state[T]{
			version: firstVersion,
			objects: map[types.NamespacedName]T{},
			uids:    map[types.UID]bool{},
			history: newHistory[T](firstVersion),
		},
		readers: readers{open: map[*lifetime]bool{}, waiters: map[*waiter]bool{}},
		faults:  newFaults(),
	}
	for _, obj := range objs {
		if _, err := s.Create(obj); err != nil {
			panic(fmt.Sprintf("informertest: NewSource: %v", err))
		}
	}
	return s
}

// Create adds a copy of obj and returns it as stored. It keeps the UID of obj, but makes a new one
// if the UID is empty or an object of this source has had it before. It ignores the resourceVersion
// of obj. If obj has a generateName and no name, Create makes a name that no other object has: the
// generateName, cut off after 58 bytes, and five random characters. Create does not block. It
// returns AlreadyExists if there is an object with this namespace and name, and Invalid if obj has
// neither a name nor a generateName.
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

// Update replaces an object by a copy of obj and returns it as stored. As with the API server, an
// update without a difference in JSON writes nothing and sends nothing to watches. It returns the
// stored object then. Update does not block. It returns NotFound if there is no such object, and
// Conflict if the UID or resourceVersion of obj differs from that of the stored object. An empty UID
// or resourceVersion is not compared.
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

// Apply creates an object, or replaces it by a copy of obj, and returns it as stored. It is not a
// server-side apply. It does not compare the UID and resourceVersion of obj with those of the
// stored object. As with Update, an update without a difference writes nothing. Apply does not
// block. It panics if obj has no name: it does not use the generateName.
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

// Delete removes an object and returns its last state, with the resourceVersion of the deletion. It
// returns the error NotFound if there is no such object. It does not block.
func (s *Source[T]) Delete(key types.NamespacedName) (T, error) { return s.deleteIf(key, nil) }

func (s *Source[T]) deleteIf(key types.NamespacedName, only *metav1.Preconditions) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delete(key, only)
}

// Get returns a copy of an object, or the error NotFound if there is no such object. It does not
// block.
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

// ResourceVersion returns the current resourceVersion, a decimal number. Each write, Compact and
// Expire increases it, and Restore sets it back. ResourceVersion does not block.
func (s *Source[T]) ResourceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return formatVersion(s.version)
}

// SetSelectableFields makes field selectors work for fields of a custom resource, such as
// "spec.color", as the selectableFields of a CustomResourceDefinition do. A path is written
// like a jsonPath there, with or without the leading dot. The value of the field must be a
// string, a boolean or an integer. If the field is missing, a selector sees an empty string.
//
// The fields that Kubernetes has for the type of the objects still work. A later call replaces the
// fields of an earlier call, except for watches that are open. SetSelectableFields does not block.
// It panics if a path is empty.
func (s *Source[T]) SetSelectableFields(paths ...string) {
	custom := make([]string, 0, len(paths))
	for _, path := range paths {
		if path = strings.TrimPrefix(path, "."); path == "" {
			panic("informertest: SetSelectableFields: a path is empty")
		}
		custom = append(custom, path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.customFields = at(custom...)
}

// Requests returns all LISTs and WATCHes that the source has received so far, in order. It does not
// block.
func (s *Source[T]) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := make([]Request, 0, len(s.requests))
	for _, r := range s.requests {
		requests = append(requests, Request{r.Verb, *r.Options.DeepCopy(), r.Err})
	}
	return requests
}

// record adds a request to the result of Requests. The caller must set Err of the returned Request,
// under the lock, once the error is known.
func (s *Source[T]) record(verb string, options metav1.ListOptions) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Request{Verb: verb, Options: *options.DeepCopy()}
	s.requests = append(s.requests, r)
	return r
}

// Watches returns how many watches are open. It does not block.
func (s *Source[T]) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// WaitForWatches blocks until exactly n watches are open, even if only briefly, and returns nil. If
// n watches are open already, it returns at once. Faults.Down, Disconnect, Expire and Restore leave
// no watch open, so a test can then wait until the readers have opened new watches. An open watch
// does not mean that anything has been read from it. If ctx ends first, WaitForWatches returns an
// error that wraps the error of ctx.
func (s *Source[T]) WaitForWatches(ctx context.Context, n int) error {
	w := &waiter{n: n, done: make(chan struct{})}
	s.mu.Lock()
	s.waiters[w] = true
	s.openChanged()
	s.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiters[w] {
		return nil
	}
	delete(s.waiters, w)
	return fmt.Errorf("informertest: %d watches are open, not %d: %w", len(s.open), n, ctx.Err())
}
