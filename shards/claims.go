package shards

import (
	"context"
	"sync"
	"time"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// claim claims which deletes are handled, again and again until the session is over.
func (s *session) claim() {
	for {
		var held []*holding
		s.set.mu.Lock()
		for _, h := range s.holdings {
			if h.phase == open {
				held = append(held, h)
			}
		}
		s.set.mu.Unlock()
		seen, known, connected := leases.Versions{}, leases.Versions{}, true
		for _, w := range s.set.joined() {
			seen[w.name], known[w.name] = w.Seen(), w.Known()
			connected = connected && w.Connected()
		}
		claims := s.set.claims(held, s.set.opts.RenewEvery)
		s.set.mu.Lock()
		s.claims, s.seen = claims, seen
		s.compareLocked(known, connected, time.Now())
		s.set.poke() // the Lease of a bucket may have deletes that are handled now
		s.set.mu.Unlock()
		select {
		case <-s.ended:
			return
		case <-time.After(min(s.set.opts.RenewEvery/2, askAfter)):
		}
	}
}

// claims returns the claims for buckets of this replica. It waits for at most d. It asks the workers
// also if there are no buckets, because they note the time for deletes to come.
func (s *Set) claims(held []*holding, d time.Duration) []leases.Claim {
	buckets, known := Buckets{}, map[int]leases.Versions{}
	for _, h := range held {
		buckets.Insert(h.bucket)
		known[h.bucket] = h.known
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), d)
	defer cancel()
	handled := leases.Handled{}
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, w := range s.joined() {
		all.Go(func() {
			h := w.handled(ctx, buckets)
			mu.Lock()
			defer mu.Unlock()
			handled[w.name] = h
		})
	}
	all.Wait()
	return leases.Claims(handled, known)
}
