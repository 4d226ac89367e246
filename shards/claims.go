package shards

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// claim records which deletes are handled, for the Lease of a session, until the session is over. It does so every half of
// Options.RenewEvery, and at least every askAfter.
func (s *Set) claim(n *session) {
	for {
		held := n.allOpen()
		seen, known, connected := leases.Versions{}, leases.Versions{}, true
		for _, w := range s.workers {
			seen[w.name], known[w.name] = w.Seen(), w.Known()
			connected = connected && w.Connected()
		}
		claims := s.claims(held, s.opts.RenewEvery)
		if len(s.sources) > 0 { // their last list counts: one that is under way may take long
			connected = !slices.ContainsFunc(s.sources, (*source).stuck)
		}
		s.mu.Lock()
		n.compare(claims, seen, known, s.view.seenBy(n.id, time.Now()), connected)
		s.poke() // the Lease of a bucket may have deletes that are handled now
		s.mu.Unlock()
		select {
		case <-n.ended:
			return
		case <-time.After(min(s.opts.RenewEvery/2, askAfter)):
		}
	}
}

// claims returns which deletes of the held buckets are handled. It waits for at most d. It asks the
// workers even if held is empty, because they note the time for later deletes.
func (s *Set) claims(held []*holding, d time.Duration) []leases.Claim {
	buckets, known := sharding.Buckets{}, map[int]leases.Versions{}
	for _, h := range held {
		buckets.Insert(h.bucket)
		known[h.bucket] = h.known
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), d)
	defer cancel()
	handled := leases.Handled{}
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, w := range s.workers {
		all.Go(func() {
			ranges := w.Handled(ctx, buckets)
			mu.Lock()
			defer mu.Unlock()
			handled[w.name] = ranges
		})
	}
	all.Wait()
	return leases.Claims(handled, known)
}
