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
