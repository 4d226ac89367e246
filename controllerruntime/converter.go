package controllerruntime

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// converter is a watch that changes the events of another watch and passes them on.
// Unlike watch.Filter, it does not leak its goroutine if it is stopped while it holds an
// event.
type converter struct {
	inner   watch.Interface
	convert func(watch.Event) watch.Event
	ahead   int // how many converted events may wait for the reader; 0 means any number
	out     chan watch.Event
	once    sync.Once
	stopped chan struct{}
	done    chan struct{}
}

func newConverter(inner watch.Interface, ahead int, convert func(watch.Event) watch.Event) *converter {
	c := &converter{
		inner: inner, convert: convert, ahead: ahead,
		out: make(chan watch.Event), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	go c.run()
	return c
}

func (c *converter) ResultChan() <-chan watch.Event { return c.out }

// Stop stops both watches. It blocks until the goroutine of the converter has returned.
func (c *converter) Stop() {
	c.once.Do(func() { close(c.stopped) })
	<-c.done
}

func (c *converter) run() {
	defer close(c.done)
	defer close(c.out)
	defer c.inner.Stop()
	in := c.inner.ResultChan()
	var waiting []watch.Event
	for in != nil || len(waiting) > 0 {
		from, to, first := in, c.out, watch.Event{}
		if len(waiting) == 0 {
			to = nil
		} else {
			first = waiting[0]
		}
		if c.ahead > 0 && len(waiting) >= c.ahead {
			from = nil
		}
		select {
		case e, open := <-from:
			if !open {
				in = nil
				continue
			}
			waiting = append(waiting, c.convert(e))
		case to <- first:
			waiting = waiting[1:]
		case <-c.stopped:
			return
		}
	}
}
