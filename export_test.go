package informer

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
	i.sinks[0].enter(i.gate.ctx, it, gateBound)
}
