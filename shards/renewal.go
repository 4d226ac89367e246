package shards

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// renew writes the Lease of a session every Options.RenewEvery, and at once if the session is leaving. If the session is in a
// hurry or a write has failed, renew does so within retryAfter.
func (s *Set) renew(n *session, leave <-chan struct{}) {
	pause := time.NewTimer(s.opts.RenewEvery)
	defer pause.Stop()
	begun := time.Now() // of the last write
	for {
		select {
		case <-n.ended:
			return
		case <-leave:
			leave = nil // at once, so that the others take over
		case <-n.hurry:
			if wait := retryAfter - time.Since(begun); wait > 0 { // in case that it is changed again and again
				pause.Reset(wait)
				continue
			}
		case <-pause.C:
		}
		begun = time.Now()
		if s.write(n) {
			pause.Reset(max(0, s.opts.RenewEvery-time.Since(begun)))
		} else {
			pause.Reset(min(retryAfter, s.opts.RenewEvery))
		}
	}
}

func (s *Set) write(n *session) bool {
	ctx, cancel := context.WithTimeout(n.ctx, s.opts.RenewEvery)
	defer cancel()
	lease, sent := s.mark().On(n.lease, "", n.id), time.Now()
	n.publish(lease, s.workersHere(), sent)
	written, err := s.put(ctx, lease)
	switch {
	case err == nil:
		n.lease = written
		return s.renewed(n, sent)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		s.rereadSession(ctx, n, err)
	case n.ctx.Err() == nil:
		s.report(fmt.Errorf("renewing the session: %w", err))
	}
	return false
}

func (s *Set) renewed(n *session, sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.extend(sent) {
		return true
	}
	s.endLocked(n, nil)
	return false
}

var errEnded = errors.New("another replica has ended it")

// rereadSession reads the Lease after a conflict, which is also the answer of an API server if the Lease was deleted. Unless
// that is so, or another replica has ended the session, the next write starts from the Lease that was read.
func (s *Set) rereadSession(ctx context.Context, n *session, conflict error) {
	lease, err := s.leases.Get(ctx, n.lease.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.lose(n, fmt.Errorf("its Lease %s was deleted", n.lease.Name))
	case err != nil:
		s.report(fmt.Errorf("renewing the session: %w", conflict))
	case lease.UID != n.lease.UID || leases.ReadSession(lease).Ended:
		s.lose(n, errEnded)
	default:
		n.lease = lease
	}
}

// lose ends a session. err is why the session cannot continue, or nil if it was not renewed in time.
func (s *Set) lose(n *session, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && !n.expired() {
		return // it was renewed at the last moment
	}
	s.endLocked(n, err)
}

func (s *Set) endLocked(n *session, err error) {
	if !n.end() {
		return
	}
	if s.session == n {
		s.session = nil
		s.lag = n.lag.next()
		s.updateSourcesLocked()
	}
	if !n.leaving || len(n.holdings) > 0 {
		s.counts.lost++
		if err == nil {
			s.later(errSessionLost)
		} else {
			s.later(fmt.Errorf("%w: %w", errSessionLost, err))
		}
	}
	s.old[n] = true
	s.poke()
}
