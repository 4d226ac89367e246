package serving

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	oldest  uint64        // watches from before it get 410
	changed chan struct{} // closed at the next change
	lists   int
}

type change struct {
	version uint64
	event   watch.Event
}

// newMemory returns a storage whose versions begin after version.
func newMemory(version uint64) *memory {
	return &memory{version: version, oldest: version, objects: map[string]runtime.Object{}, changed: make(chan struct{})}
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

// relist ends all watches as if their version were gone, so that the state is listed again.
func (m *memory) relist() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	m.oldest = m.version
	m.log = nil
	m.publish(watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("gone").ErrStatus})
}

func (m *memory) publish(event watch.Event) {
	m.log = append(m.log, change{m.version, event})
	close(m.changed)
	m.changed = make(chan struct{})
}

// listed returns how often the state was listed.
func (m *memory) listed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists
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

func (m *memory) GetList(_ context.Context, _ string, opts storage.ListOptions, out runtime.Object) error {
	if opts.ResourceVersion != "" {
		return fmt.Errorf("asked for version %q", opts.ResourceVersion)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists++
	var all []runtime.Object
	for _, obj := range m.objects {
		all = append(all, obj)
	}
	if err := meta.SetList(out, all); err != nil {
		return err
	}
	return m.Versioner().UpdateList(out, m.version, "", nil)
}

func (m *memory) Watch(ctx context.Context, _ string, opts storage.ListOptions) (watch.Interface, error) {
	version, err := m.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil || opts.SendInitialEvents != nil {
		return nil, fmt.Errorf("unexpected options %+v: %w", opts, err)
	}
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		for {
			next, changed := m.after(version)
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
			case <-w.StopChan():
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
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
	if version < m.oldest && len(next) == 0 {
		next = []change{{m.version, watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("gone").ErrStatus}}}
	}
	return next, m.changed
}

// silentStorage never has a state.
type silentStorage struct {
	*memory
	asked chan struct{}
}

func (s *silentStorage) GetList(ctx context.Context, _ string, _ storage.ListOptions, _ runtime.Object) error {
	close(s.asked)
	<-ctx.Done()
	return ctx.Err()
}
