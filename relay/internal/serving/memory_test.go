package serving

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// memory is a storage of objects in memory that keeps every change. The methods that it lacks panic,
// so that a request which reaches them is answered with 500.
type memory struct {
	storage.Interface
	mu      sync.Mutex
	version uint64
	objects map[string]runtime.Object
	log     []change
	changed chan struct{} // closed at the next change
	lost    chan struct{} // closed by restore
	reads   int
}

type change struct {
	version uint64
	event   watch.Event
}

// newMemory returns a storage whose versions begin after version.
func newMemory(version uint64) *memory {
	return &memory{version: version, objects: map[string]runtime.Object{}, changed: make(chan struct{}), lost: make(chan struct{})}
}

// set adds or updates an object, and returns it with its version.
func (m *memory) set(t testing.TB, obj runtime.Object) runtime.Object {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	obj = obj.DeepCopyObject()
	object, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	m.version++
	object.SetResourceVersion(strconv.FormatUint(m.version, 10))
	key := object.GetNamespace() + "/" + object.GetName()
	object.SetUID(apitypes.UID(key))
	kind := watch.Modified
	if m.objects[key] == nil {
		kind = watch.Added
	}
	m.objects[key] = obj
	m.publish(watch.Event{Type: kind, Object: obj})
	return obj
}

// remove deletes an object.
func (m *memory) remove(t testing.TB, key string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	obj := m.objects[key].DeepCopyObject()
	object, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	m.version++
	object.SetResourceVersion(strconv.FormatUint(m.version, 10))
	delete(m.objects, key)
	m.publish(watch.Event{Type: watch.Deleted, Object: obj})
}

// relist ends all watches as if their version were gone, so that the state is read again.
func (m *memory) relist() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	m.log = nil
	m.publish(watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("gone").ErrStatus})
}

// restore ends all watches, and replaces the state by an older one.
func (m *memory) restore(version uint64, objects map[string]runtime.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version, m.objects, m.log = version, objects, nil
	close(m.lost)
	m.lost = make(chan struct{})
}

// backup returns what restore needs.
func (m *memory) backup() (uint64, map[string]runtime.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version, maps.Clone(m.objects)
}

func (m *memory) publish(event watch.Event) {
	m.log = append(m.log, change{m.version, event})
	close(m.changed)
	m.changed = make(chan struct{})
}

// read returns how often the state was read.
func (m *memory) read() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads
}

func (m *memory) Versioner() storage.Versioner                        { return storage.APIObjectVersioner{} }
func (m *memory) RequestWatchProgress(context.Context) error          { return nil }
func (m *memory) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }
func (m *memory) CompactRevision() int64                              { return 0 }
func (m *memory) GetCurrentResourceVersion(context.Context) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version, nil
}

func (m *memory) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return errors.New("the storage cannot be listed")
}

func (m *memory) Watch(ctx context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents == nil || !*opts.SendInitialEvents {
		return nil, errors.New("the storage sends no changes without the state")
	}
	state, version, lost := m.state()
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		for {
			next, changed := m.after(version)
			next, state = append(state, next...), nil
			for _, c := range next {
				select {
				case events <- c.event:
					version = c.version
				case <-w.StopChan():
					return
				case <-ctx.Done():
					return
				}
				if c.event.Type == watch.Error {
					return
				}
			}
			select {
			case <-changed:
			case <-lost:
				return
			case <-w.StopChan():
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}

// state returns the objects and the bookmark for their end, as changes, the version, and a channel that
// is closed when all that is lost.
func (m *memory) state() ([]change, uint64, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	var all []change
	for _, obj := range m.objects {
		all = append(all, change{m.version, watch.Event{Type: watch.Added, Object: obj}})
	}
	mark := &metav1.PartialObjectMetadata{}
	mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	mark.ResourceVersion = strconv.FormatUint(m.version, 10)
	return append(all, change{m.version, watch.Event{Type: watch.Bookmark, Object: mark}}), m.version, m.lost
}

// after returns the changes after version, and a channel that is closed at the next change.
func (m *memory) after(version uint64) ([]change, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var next []change
	for _, c := range m.log {
		if c.version > version {
			next = append(next, c)
		}
	}
	return next, m.changed
}

// silentStorage never has a state.
type silentStorage struct {
	*memory
	asked chan struct{}
}

func (s *silentStorage) Watch(ctx context.Context, _ string, _ storage.ListOptions) (watch.Interface, error) {
	close(s.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}
