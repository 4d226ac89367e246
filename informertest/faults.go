package informertest

import (
	"context"
	"sync"
	"time"
)

// delays makes the requests of a [Source], or the operations of a [Store] or a [Durable], wait.
// With the zero value they do not wait.
type delays struct {
	mu    sync.Mutex
	holds map[chan struct{}]bool // closed when released
	each  time.Duration
}

// hold makes each later operation wait until release is called.
func (d *delays) hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	hold := make(chan struct{})
	if d.holds == nil {
		d.holds = map[chan struct{}]bool{}
	}
	d.holds[hold] = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.holds[hold] {
			delete(d.holds, hold)
			close(hold)
		}
	}
}

// heal releases all holds. From now on operations take no time.
func (d *delays) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.each = 0
	for hold := range d.holds {
		close(hold)
	}
	clear(d.holds)
}

func (d *delays) held() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	for hold := range d.holds {
		return hold
	}
	return nil
}

// wait waits until all holds are released, and then for the delay. If ctx ends first, wait returns
// the error of ctx.
func (d *delays) wait(ctx context.Context) error {
	for hold := d.held(); hold != nil; hold = d.held() {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d.mu.Lock()
	each := d.each
	d.mu.Unlock()
	if each > 0 {
		timer := time.NewTimer(each)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func set[V any](mu *sync.Mutex, field *V, value V) {
	mu.Lock()
	defer mu.Unlock()
	*field = value
}
