package source

import (
	"maps"
	"slices"
	"sync"
)

// callGroup counts the calls that are under way. Unlike a sync.WaitGroup, it may be entered at
// any time, because client-go's pager may start requests on its own goroutine after the reflector
// has returned.
type callGroup struct {
	mu     sync.Mutex     // protects the rest
	ops    map[string]int // calls by operation, without zeros
	closed bool
	idle   chan struct{} // made by close; closed when no call is left
}

// enter records that a call starts. It returns false after close, when no call may start.
func (g *callGroup) enter(op string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.ops[op]++
	return true
}

// ownWork is the operation for work of this package that must end before Run returns. It is not a
// call of the user's ListerWatcher, so underWay leaves it out.
const ownWork = ""

// rename changes the operation of a call that is under way.
func (g *callGroup) rename(from, to string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ops[to]++
	if g.ops[from]--; g.ops[from] == 0 {
		delete(g.ops, from)
	}
}

func (g *callGroup) leave(op string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ops[op]--; g.ops[op] == 0 {
		delete(g.ops, op)
	}
	if g.closed && len(g.ops) == 0 {
		close(g.idle)
	}
}

func (g *callGroup) underWay() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(g.ops)), func(op string) bool { return op == ownWork })
}

// open lets calls start again after close.
func (g *callGroup) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
}

// close makes enter return false, and waits for the calls under way.
func (g *callGroup) close() {
	g.mu.Lock()
	g.closed = true
	g.idle = make(chan struct{})
	if len(g.ops) == 0 {
		close(g.idle)
	}
	g.mu.Unlock()
	<-g.idle
}
