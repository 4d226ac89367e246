package source

import (
	"maps"
	"slices"
	"sync"
)

// callGroup counts calls that are under way. Unlike a sync.WaitGroup it may be entered at any
// time: client-go's pager starts further requests on a goroutine of its own after the
// reflector has returned.
type callGroup struct {
	mu     sync.Mutex     // protects the rest
	ops    map[string]int // calls by operation, without zeros
	closed bool
	idle   chan struct{} // made by close; closed when no call is left
}

// enter notes that a call starts. It returns false if no call may start any more.
func (g *callGroup) enter(op string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.ops[op]++
	return true
}

// ownWork stands for work of this package that must end before Run returns. It is no call of the
// user's, and has no name.
const ownWork = ""

// rename notes that a goroutine that has entered goes from one operation to another.
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

// open lets calls start after close.
func (g *callGroup) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
}

// close lets no further call start and waits for the calls under way.
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
