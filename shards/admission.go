package shards

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// newSession begins a session. A first request creates the Lease as idle, and a second one writes that the
// session may have buckets. The answer to the first may come late or never: other replicas then leave no
// buckets to a session that this replica does not know of.
func (s *Set) newSession(ctx context.Context) (*session, error) {
	random := make([]byte, 5)
	_, _ = rand.Read(random)
	id := s.opts.Identity + "_" + hex.EncodeToString(random)
	created, err := s.createSession(ctx, id)
	if err != nil {
		return nil, err
	}
	lease, sent, err := s.beginSession(ctx, created)
	if err != nil {
		s.discard(created)
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := newSession(&s.opts, id, lease, sent, s.lag.next(), s.lose)
	s.session = n
	s.view.note(lease, false, time.Now())
	return n, nil
}

// errVersionless is the error for a fake clientset of client-go.
var errVersionless = errors.New("the Leases have no resourceVersions, so that two replicas may take one bucket: " +
	"in tests, have an informertest.Source serve the Leases of a fake clientset")

// idleSession returns the content of the Lease of a session that has no buckets yet. The session counts as
// late, see lag.next.
func (s *Set) idleSession(idle bool) leases.Session {
	return leases.Session{Duration: s.opts.LeaseDuration, Workers: s.workersHere(), Idle: idle, Late: true}
}

func (s *Set) createSession(ctx context.Context, id string) (*coordinationv1.Lease, error) {
	lease := s.mark().On(nil, leases.SessionName(s.opts.Name, id), id)
	s.idleSession(true).Write(lease, time.Now())
	lease.Spec.AcquireTime = lease.Spec.RenewTime
	ctx, cancel := context.WithTimeout(ctx, s.opts.RenewEvery)
	defer cancel()
	return s.put(ctx, lease)
}

// beginSession writes into the Lease of a session that the session may have buckets from now on. It
// returns the Lease and the time when it sent the request, or an error if this replica may not join.
func (s *Set) beginSession(ctx context.Context, created *coordinationv1.Lease) (lease *coordinationv1.Lease, sent time.Time, err error) {
	if created.ResourceVersion == "" {
		return nil, sent, errVersionless
	}
	if err := s.fits(ctx, created); err != nil {
		return nil, sent, err
	}
	lease, sent = created.DeepCopy(), time.Now()
	s.idleSession(false).Write(lease, sent)
	ctx, cancel := context.WithTimeout(ctx, s.opts.RenewEvery)
	defer cancel()
	lease, err = s.put(ctx, lease)
	return lease, sent, err
}

// fits returns an error if a working replica divides in another way, or is of another program. It must be
// called after the Lease of the new session was created. So if two replicas begin at the same time, at
// least one finds the Lease of the other.
func (s *Set) fits(ctx context.Context, own *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.RenewEvery)
	defer cancel()
	all, err := s.labelled().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all.Items {
		s.view.note(&all.Items[i], false, now)
	}
	ours := s.isOursLocked(now)
	for i := range all.Items {
		lease := &all.Items[i]
		holder := s.view.session(leases.Holder(lease), now)
		if lease.UID == own.UID || holder == nil || !holder.mayWork(&s.opts, now) {
			continue
		}
		if err := s.mark().Differs(lease); err != nil {
			return err
		}
		if err := s.isOtherProgram(holder); err != nil && (!ours || !holder.Idle) {
			return err
		}
	}
	return nil
}

// discard deletes the Lease of a session that has not begun.
func (s *Set) discard(lease *coordinationv1.Lease) {
	ctx, cancel := s.request()
	defer cancel()
	if err := s.remove(ctx, lease); err != nil && !apierrors.IsNotFound(err) {
		s.report(fmt.Errorf("deleting the Lease %s of a session that has not begun: %w", lease.Name, err))
	}
}
