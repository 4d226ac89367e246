// Package queues shows to the provider of the metrics of workqueues which of them belong to
// controllers, and which of these have ended. A workqueue itself reports neither.
package queues

import (
	"sync"
	"sync/atomic"
)

// Queue is the workqueue of a controller. Nil stands for any other queue.
type Queue struct {
	name string
	over atomic.Bool
}

var mu sync.Mutex // held while a controller makes its queue
var making atomic.Pointer[Queue]

// Make returns the queue that construct makes for a controller, which calls end after its shutdown.
func Make[Q any](name string, construct func() Q) (made Q, end func()) {
	mu.Lock()
	defer mu.Unlock()
	q := &Queue{name: name}
	making.Store(q)
	defer making.Store(nil)
	return construct(), func() { q.over.Store(true) }
}

// Making returns the queue of that name that a controller is making, nil if none is.
func Making(name string) *Queue {
	if q := making.Load(); q != nil && q.name == name {
		return q
	}
	return nil
}

// Over reports whether q is the queue of a controller that has ended.
func (q *Queue) Over() bool { return q != nil && q.over.Load() }
