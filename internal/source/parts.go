package source

import (
	"cmp"
	"errors"
	"sync"
)

// patientLists is how many lists in a row may expire before they are complete, because the sink or the
// network is slow. The next list is requested as a whole.
const patientLists = 2

// parts passes a list to the sink in parts while it comes in: the pages of a list, or the events of a
// stream of the first state. So nothing has to hold a whole list. The reflector gets pages without
// objects, and only the bookmark of a stream.
//
// Pages come from the goroutine of client-go's pager, events from a forwarder, and the end of the list
// from the reflector, but never two at once.
type parts struct {
	mu      sync.Mutex // held while the sink takes a part; protects the rest
	open    bool       // the list that comes in has begun in parts
	behind  bool       // a list has begun in parts, and none has been complete since
	expired int        // how many lists in a row have expired before they were complete
	shown   string     // see last
}

// request returns how the next list must be requested. newest is true if the sink has objects of a
// list that was given up. whole is true if too many lists have expired.
func (p *parts) request() (newest, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.behind, p.expired >= patientLists
}

func (p *parts) whole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = false
}

// last returns the latest version that a list has shown since the last complete one, including lists
// that were given up.
func (p *parts) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown
}

// begin reports to the sink that a list begins. version is "" if it is not known yet. See Sink.Begin for
// doubtful.
func (p *parts) begin(sink Sink, version string, doubtful bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open, p.behind = true, true
	if !older(version, p.shown) {
		p.shown = cmp.Or(version, p.shown)
	}
	sink.Begin(doubtful)
}

// take calls give, which must pass a part of the list to the sink.
func (p *parts) take(give func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	give()
}

// end records that a list of this version is complete. If the list came in parts, end calls
// Sink.End and returns true. Otherwise it returns false.
func (p *parts) end(sink Sink, version string) (inParts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inParts = p.open
	p.open, p.behind, p.expired, p.shown = false, false, 0, version
	if inParts {
		sink.End(version)
	}
	return inParts
}

// pageExpired returns the error for a page that the server no longer has. After an Expired error,
// client-go would request all objects at once, but give them the version of the first page. So
// pageExpired returns another error.
func (p *parts) pageExpired(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expired++
	return errors.New("the list begins again, because the server no longer has its next page: " + err.Error())
}
