// Package queues informs a provider of workqueue metrics which workqueues belong to controllers, and
// which of these have ended. A workqueue itself reports neither.
package queues

import (
	"sync"
	"sync/atomic"
)

// Queue stands for the workqueue of a controller. Nil stands for any other queue.
type Queue struct {
	name string
	over atomic.Bool
}

var mu sync.Mutex // held while a controller makes its queue
var making atomic.Pointer[Queue]

// Make calls construct, which must make the queue of a controller, and returns the queue. During
// this call, Making returns a Queue. The controller must call end after the shutdown of the queue.
func Make[Q any](name string, construct func() Q) (made Q, end func()) {
	mu.Lock()
	defer mu.Unlock()
	q := &Queue{name: name}
	making.Store(q)
	defer making.Store(nil)
	return construct(), func() { q.over.Store(true) }
}

// Making returns the Queue with this name that a controller is making, or nil if there is none.
func Making(name string) *Queue {
	if q := making.Load(); q != nil && q.name == name {
		return q
	}
	return nil
}

// Over reports whether q is the queue of a controller that ended.
func (q *Queue) Over() bool { return q != nil && q.over.Load() }
