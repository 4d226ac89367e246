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

// Faults are the lasting faults of a [Source], and the features of the server that the source
// simulates. With the zero Faults, the server works. [Source.SetFaults] sets them.
type Faults struct {
	// Down makes the server unreachable. All open watches end at once, as with Disconnect. Each
	// LIST and WATCH, and each request through a clientset that the source serves, fails like a
	// request to a port where nothing listens: the error wraps [syscall.ECONNREFUSED]. Requests
	// still returns these LISTs and WATCHes. They do not use up failures of Fail and FailIn. A LIST
	// that is held or delayed fails only if the server is down when its wait ends.
	//
	// Create, Update, Apply, Delete and the other methods of the source itself still work, so a
	// test can make the changes that a program finds when the server is back. The source keeps the
	// history, so a reader may then continue with a new watch where the last one ended. To drop the
	// history, call Compact.
	Down bool

	// Mute holds back all events of all watches, open and new, like a connection that has failed
	// without being closed. When Mute ends, the watches catch up. A muted watch ends like any
	// other: on Down, Disconnect, Expire or Restore, after its timeout, or when its reader stops
	// it. A 410 Expired is not held back. An event that is being delivered when Mute is set may
	// still arrive.
	Mute bool

	// HoldLists makes each LIST wait until HoldLists is false again or the ctx of the LIST ends.
	// The answer has the state at the end of the wait. A LIST through a clientset that the source
	// serves does not wait, see [Source.Serve].
	HoldLists bool

	// ListDelay is how long each LIST takes, in addition to the wait for HoldLists. The answer has
	// the state at the end of that time. If ListDelay is 0 or less, the LIST takes no time. A LIST
	// through a clientset that the source serves takes no time either.
	ListDelay time.Duration

	// ListItems are added, unchanged, to each answer to a LIST, for example an object of another
	// type, an object without a name, or nil. Each reader gets the same objects, not copies.
	ListItems []runtime.Object

	// OmitListVersion removes the resourceVersion from each answer to a LIST.
	OmitListVersion bool

	// RejectWatchList makes the source behave like an API server without streaming lists: a watch
	// that asks for the initial events gets 422 Invalid.
	RejectWatchList bool

	// IgnoreWatchList makes the source behave like a server that does not understand the request
	// for initial events, like many fakes: it opens the watch and never sends anything.
	// IgnoreWatchList has no effect if RejectWatchList is true.
	IgnoreWatchList bool

	// RefuseExpired makes the call that opens a watch return 410 Expired if the resourceVersion is
	// no longer known. Without RefuseExpired, as with the API server, the call succeeds and the
	// error is the only event of the watch.
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

// absence returns the error of a request with this HTTP method while the server is down, and nil
// otherwise.
func (f *faults) absence(method string) error {
	if !f.Down {
		return nil
	}
	connect := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	return &url.Error{Op: method, URL: "https://informertest.invalid", Err: connect}
}

// failure returns the error of a request for a namespace: that of Down, or the next one of FailIn
// or Fail, which it uses up. It returns nil if the request succeeds.
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
