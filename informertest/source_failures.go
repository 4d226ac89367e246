package informertest

import (
	"net"
	"net/url"
	"os"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
)

// WatchListMode says how a source answers a watch that asks for the initial events; see
// [Source.SetWatchList].
type WatchListMode uint8

const (
	// WatchListSupported is a server that sends the initial events and the bookmark at their
	// end. It is the default.
	WatchListSupported WatchListMode = iota
	// WatchListRejected is an API server with the feature switched off: it answers 422
	// Invalid.
	WatchListRejected
	// WatchListSilent is a server that does not understand the request, like many fakes: it
	// opens the watch and never sends anything.
	WatchListSilent
)

// faults holds the faults that a source has at the moment, and the kind of server it is.
type faults struct {
	down        bool
	failures    map[target][]failure
	mute        mute
	lists       delays
	listItems   []runtime.Object
	omitVersion bool

	watchList     WatchListMode
	refuseExpired bool
}

// target says for which requests failures are meant.
type target struct {
	verb      string
	namespace string // of the request; "" for a request for all namespaces
	every     bool   // for requests of every namespace; namespace is then empty
}

type failure struct {
	err   error
	times int // negative: until Heal
}

// mute says whether watches are muted, and lets them wait for the next call of Mute.
type mute struct {
	on   bool
	over chan struct{} // closed when Mute is called again
}

func newFaults() faults {
	return faults{
		failures: map[target][]failure{},
		mute:     mute{over: make(chan struct{})},
	}
}

// absence returns the error of a request of that HTTP method while the server is down, and nil
// otherwise.
func (f *faults) absence(method string) error {
	if !f.down {
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
