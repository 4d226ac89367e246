package kubernetes_test

import (
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// calls has the calls of reconcile of all replicas.
type calls struct {
	mu       sync.Mutex                      // protects the rest
	under    map[types.NamespacedName]string // the replica of the call that is under way
	last     map[types.NamespacedName]string // the replica of the last call
	gone     map[types.NamespacedName]bool   // keys of calls that found no object
	count    map[string]int                  // by replica
	overlaps []string
}

func newCalls() *calls {
	return &calls{
		under: map[types.NamespacedName]string{}, last: map[types.NamespacedName]string{},
		gone: map[types.NamespacedName]bool{}, count: map[string]int{},
	}
}

// begin notes that a replica's call begins. The function that it returns notes the end.
func (c *calls) begin(key types.NamespacedName, replica string) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, busy := c.under[key]; busy {
		c.overlaps = append(c.overlaps, fmt.Sprintf("%v: %s begins while %s is at work", key, replica, other))
	}
	c.under[key], c.last[key] = replica, replica
	c.count[replica]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.under, key)
	}
}

func (c *calls) noteGone(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[key] = true
}

// of returns the number of calls of a replica.
func (c *calls) of(replica string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[replica]
}

func (c *calls) foundGone(key types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone[key]
}

func (c *calls) lastOf(key types.NamespacedName) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[key]
}

// check fails the test if two calls for one key overlapped, or if a replica made no call.
func (c *calls) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range c.overlaps {
		t.Error(text)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if c.count[name] == 0 {
			t.Errorf("replica %s made no call", name)
		}
	}
	t.Logf("calls by replica: %v", c.count)
}
