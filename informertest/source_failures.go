package informertest

import (
	"net"
	"net/url"
	"os"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Faults are faults of a [Source] that last, and the kind of server that it is. The zero Faults are
// those of a server that works. [Source.SetFaults] sets them.
type Faults struct {
	// Down takes the server away. All open watches end at once, as by Disconnect. A LIST, a WATCH, and
	// each request through a clientset that the source serves, fail with the error that client-go
	// returns when nothing listens: it wraps [syscall.ECONNREFUSED]. Requests still returns them. They
	// do not count against Fail. A LIST that is slow or held meanwhile fails only if the server is
	// still down at the end of that time.
	//
	// Create, Update, Apply, Delete and the other methods of the source itself work as before. So a
	// test can make the changes that a program finds when the server is back. The history is still
	// there, so that a watch may then begin where it was cut. To have it lost, call Compact.
	Down bool

	// Mute holds back all events of all watches, like a broken connection that was not noticed. It
	// applies to open watches and to those that are opened later. Afterwards they catch up. Down,
	// Disconnect, Expire, the timeout and the reader end a muted watch like any other, and a 410
	// Expired is not held back. An event on its way to the reader may still arrive.
	Mute bool

	// HoldLists makes each LIST wait. The LIST is answered, or fails, from the state at the end of
	// that time.
	HoldLists bool

	// ListDelay is how long each LIST takes, after it was held. It is answered, or fails, from the
	// state at the end of that time. 0 or less is no time.
	ListDelay time.Duration

	// ListItems are added, unchanged, to each answer to a LIST: for example an object of another type,
	// one without a name, or nil. Each reader gets the same objects, not copies.
	ListItems []runtime.Object

	// OmitListVersion makes LIST answer without a resourceVersion.
	OmitListVersion bool

	// RejectWatchList is an API server that does not stream lists: a watch that asks for the initial
	// events gets 422 Invalid.
	RejectWatchList bool

	// IgnoreWatchList is a server that does not understand the request for initial events, like many
	// fakes: it opens the watch and never sends anything. RejectWatchList comes before it.
	IgnoreWatchList bool

	// RefuseExpired makes the call that opens a watch fail if the resourceVersion is no longer known.
	// Otherwise, as with the API server, the call succeeds and the error is the only event.
	RefuseExpired bool
}

type faults struct {
	Faults
	failures map[target][]failure
	over     chan struct{} // closed when Faults change
	lists    delays
	release  func() // ends HoldLists; nil if lists are not held
}

type target struct {
	verb      string
	namespace string // of the request; "" for a request for all namespaces
	every     bool   // for requests of every namespace; namespace is then empty
}

type failure struct {
	err   error
	times int // negative: all
}

func newFaults() faults {
	return faults{failures: map[target][]failure{}, over: make(chan struct{})}
}

// set changes the faults, except those of Fail.
func (f *faults) set(next Faults) {
	next.ListItems = slices.Clone(next.ListItems)
	f.Faults = next
	close(f.over)
	f.over = make(chan struct{})
	set(&f.lists.mu, &f.lists.each, next.ListDelay)
	switch {
	case next.HoldLists && f.release == nil:
		f.release = f.lists.hold()
	case !next.HoldLists && f.release != nil:
		f.release()
		f.release = nil
	}
}

// absence returns the error of a request of that HTTP method while the server is down, and nil
// otherwise.
func (f *faults) absence(method string) error {
	if !f.Down {
		return nil
	}
	connect := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	return &url.Error{Op: method, URL: "https://informertest.invalid", Err: connect}
}

// failure returns the error of Down, or the one that a Fail set for the next request of the
// namespace, which it counts.
func (f *faults) failure(verb, namespace string) error {
	if err := f.absence("Get"); err != nil {
		return err
	}
	for _, which := range []target{{verb: verb, namespace: namespace}, {verb: verb, every: true}} {
		queue := f.failures[which]
		if len(queue) == 0 {
			continue
		}
		err := queue[0].err
		queue[0].times--
		if queue[0].times == 0 {
			f.failures[which] = queue[1:]
		}
		return err
	}
	return nil
}
