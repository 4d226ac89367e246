package index

import (
	"context"
	"sync"
	"time"

	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/internal/object"
)

const (
	// share limits how much of the time Pages reads a store that is being written: one part in
	// share. During a read, a write may have to wait for the store's lock.
	share = 10
	// longestRest is the longest pause of Pages between two reads.
	longestRest = 100 * time.Millisecond
	// patience is how long a reader waits for the read of another reader. That read may hang, so
	// the reader then reads the page itself.
	patience = time.Second
)

// Pages reads pages of a store for any number of readers that come at the same time, such as
// watchers that join. Readers that wait for the same page share one read. Reads come one after
// the other. While the store is being written, there are rests between them, so that many readers
// leave most of the time to the writer. A Pages must not be copied.
type Pages struct {
	scan   Scan
	writes func() (done, begun int64)
	turn   chan struct{} // holds a token while no reader reads or rests

	mu      sync.Mutex       // protects the rest
	waiting map[string]*page // by the key before the page; these reads have not begun
	rested  time.Time        // when the next read may begin
	begun   int64            // the writes that had begun at the end of the last read
}

// page is the result of a read. The result is set when done is closed.
type page struct {
	readers int       // that wait for it; protected by Pages.mu
	begun   time.Time // protected by Pages.mu

	done chan struct{}
	page object.Entries
	last string
	err  error
	// stopped is true if the ctx of the reader that read is done, which means nothing for the
	// readers that share the page.
	stopped bool
}

// NewPages returns a Pages over scan. writes must return how many writes of the store have ended,
// and how many have begun. Any goroutine may call it.
func NewPages(scan Scan, writes func() (done, begun int64)) *Pages {
	p := &Pages{scan: scan, writes: writes, turn: make(chan struct{}, 1), waiting: map[string]*page{}}
	p.turn <- struct{}{}
	return p
}

// Next returns a page like Scan.Page. The read begins after the call of Next, so the page shows
// all earlier changes. Next blocks until the page is read. If gone is closed before the read
// begins, Next returns context.Canceled. The caller must end ctx when it closes gone. Next does
// not wait for ctx itself, because ctx would then keep a channel for as long as it lives. Next
// may be called from any goroutine.
func (p *Pages) Next(ctx context.Context, gone <-chan struct{}, after string) (page object.Entries, last string, err error) {
	for {
		pg, err := p.await(ctx, gone, after)
		if err != nil {
			return object.Entries{}, "", err
		}
		if !pg.stopped || ctx.Err() != nil {
			return pg.page, pg.last, pg.err
		}
	}
}

// await waits until a page is read, by its caller or by another reader, and returns it.
func (p *Pages) await(ctx context.Context, gone <-chan struct{}, after string) (*page, error) {
	pg, turn := p.join(after), p.turn
	impatient := time.NewTimer(patience)
	defer impatient.Stop()
	for {
		select {
		case <-pg.done:
			return pg, nil
		case <-turn:
			p.rest(gone, pg)
			p.read(ctx, after, pg)
			p.turn <- struct{}{}
			turn = nil // the page is being read
		case <-impatient.C:
			if !p.read(ctx, after, pg) && p.hangs(pg) {
				pg, turn = p.join(after), p.turn
			}
			impatient.Reset(patience)
		case <-gone:
			p.leave(after, pg)
			return nil, context.Canceled
		}
	}
}

// join returns the next read of a page, which has not begun.
func (p *Pages) join(after string) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	pg := p.waiting[after]
	if pg == nil {
		pg = &page{done: make(chan struct{})}
		p.waiting[after] = pg
	}
	pg.readers++
	return pg
}

// leave records that a reader no longer waits for a page. If no reader waits, the page is not
// read.
func (p *Pages) leave(after string, pg *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pg.readers--; pg.readers == 0 && p.waiting[after] == pg {
		delete(p.waiting, after)
	}
}

// rest waits until the next read may begin, until pg is read, or until gone is closed.
func (p *Pages) rest(gone <-chan struct{}, pg *page) {
	p.mu.Lock()
	pause := time.Until(p.rested)
	p.mu.Unlock()
	if pause <= 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-pg.done:
	case <-gone:
	}
}

// read reads the page, unless a read of it has begun already or ctx is done. It reports whether
// it has read the page.
func (p *Pages) read(ctx context.Context, after string, pg *page) bool {
	if !p.begin(ctx, after, pg) {
		return false
	}
	before, _ := p.writes()
	pg.page, pg.last, pg.err = p.scan.Page(ctx, after)
	pg.stopped = pg.err != nil && ctx.Err() != nil
	close(pg.done)
	_, begun := p.writes()
	p.mu.Lock()
	defer p.mu.Unlock()
	if pg.readers > 1 || len(p.waiting) > 0 { // a crowd takes the processors from the writer, too
		before = min(before, p.begun)
	}
	p.begun = begun
	if begun <= before {
		return true // nothing was written
	}
	now := time.Now()
	p.rested = now.Add(min(longestRest, (share-1)*now.Sub(pg.begun)))
	return true
}

// begin reports whether the caller must read the page: no other reader does, and ctx has not
// ended. If begin returns true, no further reader joins the page.
func (p *Pages) begin(ctx context.Context, after string, pg *page) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil || p.waiting[after] != pg {
		return false
	}
	delete(p.waiting, after)
	pg.begun = time.Now()
	return true
}

// hangs reports whether the read of a page that is under way takes longer than patience.
func (p *Pages) hangs(pg *page) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !channel.Closed(pg.done) && time.Since(pg.begun) >= patience
}
