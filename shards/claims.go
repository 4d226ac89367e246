package shards

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// claim is a true statement about deletes: those with keys in the buckets, and in the ranges of each
// worker's sources, are handled. It stays true when another replica gets a bucket.
//
// A holder answers for the deletes since it got the bucket. It may not know of earlier ones, although
// its caches have them: it may have been started, or connected again, after an object was created and
// deleted. Replicas that were told of such a delete tell the holder, see [Set.tell].
type claim struct {
	Buckets string                      `json:"buckets"` // see formatBuckets
	Handled map[string]map[string]Range `json:"handled"`
}

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
		seen, known, connected := map[string]Versions{}, map[string]Versions{}, true
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
func (s *Set) claims(held []*holding, d time.Duration) (claims []claim) {
	buckets := Buckets{}
	for _, h := range held {
		buckets.Insert(h.bucket)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), d)
	defer cancel()
	handled := map[string]map[string]Range{}
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, w := range s.joined() {
		all.Go(func() {
			h := w.Handled(ctx, buckets)
			mu.Lock()
			defer mu.Unlock()
			handled[w.name] = h
		})
	}
	all.Wait()
	slices.SortFunc(held, func(a, b *holding) int { return a.bucket - b.bucket })
	groups := map[string]Buckets{} // buckets that were taken at the same time have the same claim
	var order []string
	texts := map[string]map[string]map[string]Range{}
	for _, h := range held {
		since := later(handled, h.known)
		text := format(since)
		if groups[text] == nil {
			groups[text], texts[text] = Buckets{}, since
			order = append(order, text)
		}
		groups[text].Insert(h.bucket)
	}
	for _, text := range order {
		claims = append(claims, claim{formatBuckets(groups[text]), texts[text]})
	}
	return claims
}

// later returns the parts of ranges that come after the known versions.
func later(handled map[string]map[string]Range, known map[string]Versions) map[string]map[string]Range {
	after := map[string]map[string]Range{}
	for name, ranges := range handled {
		after[name] = map[string]Range{}
		for source, r := range ranges {
			since := known[name][source]
			if order, err := resourceversion.CompareResourceVersion(r.After, since); err != nil {
				continue // nothing was known, or the versions have no order
			} else if order < 0 {
				r.After = since
			}
			if order, err := resourceversion.CompareResourceVersion(r.After, r.To); err == nil && order > 0 {
				r.To = r.After // an empty range also says which deletes the holder may not know of
			}
			after[name][source] = r
		}
	}
	return after
}
