package informer

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // see informertest.Main
	klog.SetLogger(klog.Logger{})                             // what is to be logged has a test of its own
	goleak.VerifyTestMain(m)
}

// HoldListeners makes the goroutines of i's listeners wait for release before
// they do anything.
func HoldListeners[T Object](i *CustomCacheInformer[T], release <-chan struct{}) {
	i.processor.spawn = func(f func()) {
		i.processor.wg.Go(func() { <-release; f() })
	}
}

// StartedCh returns the channel that gates the controller.
func StartedCh[T Object](i *CustomCacheInformer[T]) <-chan struct{} { return i.processor.startedCh }

// Guests returns how many informers g keeps that others run.
func Guests(g *Group) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.guests)
}

// Enter has i take a change of its first source under a key that does not follow from the object.
func Enter[T Object](i *CustomCacheInformer[T], key string, obj T, deleted bool) {
	it := &item[T]{kind: itemUpsert, key: key, obj: obj, rv: obj.GetResourceVersion()}
	if deleted {
		it.kind = itemDelete
	}
	i.gate.scopes()[0].sink.(*sink[T]).enter(i.gate.ctx, it, gateBound)
}

// EmptySet does the first step of a change after which i has no source: the sources have left the set, and are not
// marked as gone yet.
func EmptySet[T Object](i *CustomCacheInformer[T]) {
	i.gate.mu.Lock()
	defer i.gate.mu.Unlock()
	i.gate.set.Store(&[]*scope{})
	wake(&i.gate.moved)
}
