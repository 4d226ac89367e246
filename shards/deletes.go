package shards

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file passes deletes on that the holder of a bucket cannot know of. The Lease of the bucket
// carries their keys until the holder has handled them.

// ErrDropped is wrapped by the error that reports that a replica has left without passing on all keys of
// deletes, because the Lease of a bucket has no room for them.
var ErrDropped = errors.New("shards: too many deletes are not handled")

// deletesIn returns the keys of deletes in the Lease of a bucket, by worker.
func deletesIn(lease *coordinationv1.Lease) map[string][]string {
	return parse[map[string][]string](lease.Annotations[deletesAnnotation])
}

// union returns the keys of a and b, sorted.
func union(a, b map[string][]string) map[string][]string {
	all := map[string][]string{}
	for _, m := range []map[string][]string{a, b} {
		for name, keys := range m {
			all[name] = append(all[name], keys...)
		}
	}
	for name, keys := range all {
		slices.Sort(keys)
		all[name] = slices.Compact(keys)
	}
	return all
}

// handleDeletes has the workers handle deletes that stood in the Lease of a bucket of this replica.
func (s *Set) handleDeletes(deletes map[string][]string) {
	for _, w := range s.joined() {
		if keys := deletes[w.name]; len(keys) > 0 {
			w.Handle(keys)
		}
	}
}

// lightenLocked has lighten look at the Lease of a bucket, if it has keys of deletes.
func (s *Set) lightenLocked(h *holding) {
	seen := &s.view.buckets[h.bucket]
	if h.lease.Annotations[deletesAnnotation] == "" || h.phase != open || time.Now().Before(seen.retry) {
		return
	}
	seen.retry = time.Now().Add(retryAfter)
	lease := h.lease
	s.running.Go(func() { s.lighten(h, lease) })
}

// lighten removes from the Lease of a bucket the keys of deletes that are handled.
func (s *Set) lighten(h *holding, lease *coordinationv1.Lease) {
	before, left := deletesIn(lease), deletesIn(lease) // those of workers that only other replicas have stay
	for _, w := range s.joined() {
		waiting := w.Deletes(h.bucket)
		delete(left, w.name)
		for _, key := range before[w.name] {
			if slices.Contains(waiting, key) {
				left[w.name] = append(left[w.name], key)
			}
		}
	}
	text := ""
	if len(left) > 0 {
		text = format(left)
	}
	if text == lease.Annotations[deletesAnnotation] {
		return
	}
	lease = lease.DeepCopy()
	annotate(lease, deletesAnnotation, text)
	ctx, cancel := s.request()
	defer cancel()
	written, err := s.leases.Update(ctx, lease, metav1.UpdateOptions{})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.view.note(written, false, time.Now())
		if h.phase == open && isNewer(written, h.lease) {
			h.lease = written
		}
	case !isOutdated(err):
		s.later(fmt.Errorf("removing handled deletes from the Lease of bucket %d: %w", h.bucket, err))
	}
}

// learn takes the claims of another replica. If a delete is not handled that the other replica may
// not know of, learn tells it.
func (s *Set) learn(claims []claim) {
	unknown := map[int]map[string][]string{}
	for _, c := range claims {
		buckets := parseBuckets(c.Buckets)
		for _, w := range s.joined() {
			for _, key := range w.Forget(buckets, c.Handled[w.name]) {
				b := s.Bucket(key)
				if unknown[b] == nil {
					unknown[b] = map[string][]string{}
				}
				unknown[b][w.name] = append(unknown[b][w.name], key)
			}
		}
	}
	for b, deletes := range unknown {
		s.running.Go(func() { s.tell(b, deletes) })
	}
}

// tellAll tells the holders of all buckets of the deletes that this replica still keeps, before it
// leaves. It might be the last that knows of them. It gives up if a Lease has had no room for
// LeaseDuration, because there may be no holder any more that makes room.
func (s *Set) tellAll(n *session) {
	var all sync.WaitGroup
	for b := range s.opts.Buckets {
		if number(s.waiting(b)) == 0 {
			continue
		}
		all.Go(func() {
			if left := s.tellOn(n, b, s.opts.LeaseDuration); left > 0 {
				s.report(fmt.Errorf("leaving: bucket %d: %w: %d keys", b, ErrDropped, left))
			}
		})
	}
	all.Wait()
}

// tellOn tells the holder of a bucket of all deletes that this replica keeps. It ends with the session,
// and when the Lease of the bucket has had no room for some time. It returns how many deletes it has not
// told.
func (s *Set) tellOn(n *session, bucket int, patience time.Duration) (left int) {
	full := time.Now() // since when the Lease has no room
	for {
		deletes := s.waiting(bucket) // others may have handled some
		switch done, room := s.tell(bucket, deletes); {
		case done:
			return 0
		case room:
			full = time.Now()
		}
		if n.expired() || time.Since(full) >= patience {
			return number(deletes)
		}
		select {
		case <-n.ended:
		case <-time.After(retryAfter):
		}
	}
}

// waiting returns the keys of deletes in a bucket that this replica keeps, by worker.
func (s *Set) waiting(bucket int) map[string][]string {
	deletes := map[string][]string{}
	for _, w := range s.joined() {
		if keys := w.Deletes(bucket); len(keys) > 0 {
			deletes[w.name] = keys
		}
	}
	return deletes
}

// number returns how many keys there are.
func number(deletes map[string][]string) (n int) {
	for _, keys := range deletes {
		n += len(keys)
	}
	return n
}

// tell adds keys of deletes to the Lease of a bucket that this replica does not have, as many as it has
// room for. It reports whether nothing is left to tell, and whether the Lease had room.
func (s *Set) tell(bucket int, deletes map[string][]string) (done, room bool) {
	if number(deletes) == 0 {
		return true, true
	}
	s.mu.Lock()
	lease := s.view.buckets[bucket].lease
	ours := s.session != nil && s.session.holdings[bucket] != nil
	s.mu.Unlock()
	if lease == nil || ours {
		return ours, false
	}
	lease = lease.DeepCopy()
	told := addDeletes(lease, deletes)
	if number(told) == 0 {
		return false, false // the holder handles those that are there, and then there is room
	}
	ctx, cancel := s.request()
	defer cancel()
	written, err := s.leases.Update(ctx, lease, metav1.UpdateOptions{})
	if isOutdated(err) {
		s.reread(ctx, bucket)
	}
	s.mu.Lock()
	switch {
	case err == nil:
		s.view.note(written, false, time.Now())
	case !isOutdated(err):
		s.later(fmt.Errorf("telling the holder of bucket %d of deletes: %w", bucket, err))
	}
	workers := s.workers
	s.mu.Unlock()
	if err != nil {
		return false, true
	}
	for _, w := range workers {
		w.ForgetKeys(told[w.name])
	}
	return number(told) == number(deletes), true
}

// addDeletes adds keys of deletes to the Lease of a bucket. It returns those for which there is room.
func addDeletes(lease *coordinationv1.Lease, deletes map[string][]string) (added map[string][]string) {
	there := deletesIn(lease)
	for ; number(deletes) > 0; deletes = half(deletes) {
		if text := format(union(deletes, there)); len(text) <= maxDeletes {
			annotate(lease, deletesAnnotation, text)
			return deletes
		}
	}
	return nil
}

// half returns the first half of the keys of each worker.
func half(deletes map[string][]string) map[string][]string {
	some := map[string][]string{}
	for name, keys := range deletes {
		if n := len(keys) / 2; n > 0 {
			some[name] = keys[:n]
		}
	}
	return some
}
