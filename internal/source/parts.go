package source

import (
	"cmp"
	"errors"
	"sync"
)

// patientLists is how many lists in a row may expire before they are complete, because the sink or the
// network is slow. The next one is asked for as a whole.
const patientLists = 2

// parts gives a list to the sink while it still comes in: the pages of a list, or the events of a
// stream of the first state. So nothing has to hold a whole list. The reflector gets the pages
// without their objects, and of a stream only the bookmark.
//
// Pages come from a goroutine of client-go's pager, events from a forwarder's, and the end of the list
// from the reflector's. They come one after the other.
type parts struct {
	mu      sync.Mutex // held while the sink takes a part; protects the rest
	open    bool       // the list that comes in has begun in parts
	behind  bool       // a list has begun in parts, and none has been complete since
	expired int        // how many lists in a row have expired before they were complete
	shown   string     // see last
}

// request returns how the next list must be asked for: as the newest, because the sink has objects
// of a list that was given up, and as a whole.
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

// last returns the latest version that a list has shown since the last complete one, also a list
// that was given up.
func (p *parts) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shown
}

// begin gives the sink the beginning of a list. version is "" if it is not known yet. See Sink.Begin
// for doubtful.
func (p *parts) begin(sink Sink, version string, doubtful bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open, p.behind = true, true
	if !older(version, p.shown) {
		p.shown = cmp.Or(version, p.shown)
	}
	sink.Begin(doubtful)
}

// take gives the sink a part of the list that has begun.
func (p *parts) take(give func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	give()
}

// end notes that a list of that version is complete. If it has come in parts, end gives the sink
// its end. Otherwise it returns false.
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

// pageExpired returns the error for a page that the server no longer has. If it were an Expired
// error, client-go would ask for all objects at once, and take the version of the first page for
// theirs.
func (p *parts) pageExpired(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expired++
	return errors.New("the list begins again, because the server no longer has its next page: " + err.Error())
}
