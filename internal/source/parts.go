package source

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/object"
)

// patientLists is how many lists in a row may expire before they are complete, because the sink or the
// network is slow. The next one is asked for as a whole.
const patientLists = 2

// parts gives a list to the sink while it still comes in: the pages of a list, or the events of a
// stream of the first state. So nobody has to hold a whole list. The reflector gets the pages
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

// whole notes that a list comes as a whole.
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

// takePage gives the objects of a page to the sink, and returns the page without them.
func (r *requests) takePage(page runtime.Object, first bool) (runtime.Object, error) {
	if !r.source.calls.enter(ownWork) {
		return nil, context.Canceled
	}
	defer r.source.calls.leave(ownWork)
	m, err := object.ListMeta(page)
	if err != nil {
		return nil, err
	}
	rest := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue()}}
	objs, err := meta.ExtractListWithAlloc(page)
	if err != nil {
		return nil, err
	}
	for _, obj := range objs {
		if err := r.sink.CheckType(obj); err != nil {
			return nil, err
		}
	}
	// client-go recovers a panic in the pager, and panics again elsewhere. A goroutine of its own
	// lets the trace show the function of the user that has panicked.
	var taking sync.WaitGroup
	taking.Go(func() {
		if first {
			r.beginPages(rest.ResourceVersion)
		}
		r.parts.take(func() {
			for i, obj := range objs {
				objs[i] = nil // it can be collected when the sink has it
				r.answers.notice(obj)
				r.sink.Upsert(obj, "")
			}
		})
	})
	taking.Wait()
	return rest, nil
}

// beginPages gives the sink the beginning of a list in pages.
func (r *requests) beginPages(version string) {
	if older(version, r.reached) || older(version, r.parts.last()) {
		r.trust.state.Store(wentBack) // until a list is complete
	}
	r.parts.begin(r.sink, version, r.trust.is(wentBack))
}

// beginParts gives the sink the beginning of a stream of the first state. The version of a stream is
// known only at its end. If it shows that the server went back in time, a list follows.
func (f *forwarder) beginParts() {
	calls := &f.requests.source.calls
	calls.rename("watch", ownWork)
	defer calls.rename(ownWork, "watch")
	f.requests.parts.begin(f.requests.sink, "", f.requests.trust.is(wentBack))
}

// takePart gives an event of such a stream to the sink.
func (f *forwarder) takePart(e watch.Event) {
	calls, sink := &f.requests.source.calls, f.requests.sink
	calls.rename("watch", ownWork)
	defer calls.rename(ownWork, "watch")
	f.requests.parts.take(func() {
		if e.Type == watch.Deleted {
			sink.Delete(e.Object, "")
		} else {
			f.requests.answers.notice(e.Object)
			sink.Upsert(e.Object, "")
		}
	})
}
