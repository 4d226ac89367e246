package source

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/buffer"
)

// withoutLimit returns w. If w belongs to one of client-go's fake clientsets, it returns a watch
// that takes all events from w at once, because w can hold only 100 events, and the write of the
// next one panics.
func withoutLimit(w watch.Interface) watch.Interface {
	fake, ok := w.(*watch.RaceFreeFakeWatcher)
	if !ok {
		return w
	}
	f := &fakeWatch{inner: fake, out: make(chan watch.Event), stopped: make(chan struct{})}
	f.reader.Go(func() { f.read(fake.ResultChan()) })
	return f
}

// fakeWatch reads the watch of a fake clientset into memory.
type fakeWatch struct {
	inner   *watch.RaceFreeFakeWatcher
	out     chan watch.Event
	once    sync.Once
	stopped chan struct{}
	reader  sync.WaitGroup
}

// ResultChan returns the channel of events. It is closed after the last event.
func (f *fakeWatch) ResultChan() <-chan watch.Event { return f.out }

// Stop ends the watch. It returns when the reading goroutine has returned.
func (f *fakeWatch) Stop() {
	f.once.Do(func() {
		f.inner.Stop()
		close(f.stopped)
	})
	f.reader.Wait()
}

func (f *fakeWatch) read(from <-chan watch.Event) {
	defer close(f.out)
	var (
		waiting buffer.Ring[watch.Event]
		head    watch.Event
		out     chan<- watch.Event // nil unless head is to be sent
	)
	for from != nil || out != nil {
		select {
		case e, open := <-from:
			switch {
			case !open:
				from = nil
			case out == nil:
				head, out = e, f.out
			default:
				waiting.WriteOne(e)
			}
		case out <- head:
			var more bool
			if head, more = waiting.ReadOne(); !more {
				out = nil
			}
		case <-f.stopped:
			return
		}
	}
}
