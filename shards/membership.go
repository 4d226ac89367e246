package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// Run waits until the controllers of the set (see enqueue.Options.Shards) have synced, and then joins
// the set: it takes and releases buckets until ctx ends or a controller stops. (A group stops its
// controllers before the set.) Then Run releases each bucket once its calls have returned. While a call
// does not return, Run renews the session, so that no other replica works on the same key. If the
// session is lost before ctx ends, Run begins a new one. Run returns nil once ctx is done and it has
// released all buckets or lost the session.
//
// Run returns an error if the set has no controller, or if a source that Source has returned is not read by
// exactly one informer. It also returns an error if the Leases belong to replicas with another number of
// buckets or another ByNamespace. A second Run returns at once an error that wraps
// informer.ErrAlreadyRun.
func (s *Set) Run(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer close(s.stopped)
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "set", s.opts.Name))
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	defer s.running.Wait()
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	all.Go(func() { _ = s.watched.Run(watching) })
	working, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	for _, w := range s.workers {
		all.Go(func() {
			select {
			case <-w.Stopped():
				leave(fmt.Errorf("controller %s: %w", w.name, informer.ErrStopped))
			case <-watching.Done():
			}
		})
	}
	// A worker that has stopped reports why itself, and so does one whose informer has stopped. A group
	// stops these before its sets.
	err := s.participate(working)
	switch {
	case err != nil && working.Err() == nil && !errors.Is(err, informer.ErrStopped):
		return err
	case ctx.Err() == nil && !channel.Closed(s.synced): // Health shows why the replica will not join
		s.refuse(cmp.Or(context.Cause(working), err))
	}
	<-ctx.Done()
	return nil
}

func (s *Set) begin(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx != nil {
		return fmt.Errorf("shards: set %s: %w", s.opts.Name, informer.ErrAlreadyRun)
	}
	s.ctx, s.lag.divided = ctx, len(s.sources) > 0
	removed := func(w worker) bool { return channel.Closed(w.Stopped()) }
	if left := slices.DeleteFunc(slices.Clone(s.workers), removed); len(left) > 0 { // otherwise Run has nothing to do
		s.workers = left
	}
	err := errors.New("no controller has joined, see enqueue.Options.Shards")
	if len(s.workers) > 0 {
		_, err = s.watched.AddWatcher(informer.WatcherFunc[*coordinationv1.Lease](s.note), informer.WatcherOptions{Name: s.opts.Name, MaxBacklog: -1})
	}
	if err != nil {
		close(s.stopped)
		return fmt.Errorf("shards: set %s: %w", s.opts.Name, err)
	}
	close(s.started)
	return nil
}

// participate begins one session after another until ctx ends. It returns an error if this replica
// cannot begin.
func (s *Set) participate(ctx context.Context) error {
	if err := s.await(ctx); err != nil {
		return fmt.Errorf("shards: set %s: %w", s.opts.Name, err)
	}
	for s.agree(ctx) == nil && ctx.Err() == nil {
		n, err := s.newSession(ctx)
		if err == nil {
			s.refuse(nil)
			s.hold(ctx, n)
			continue
		}
		pause := retryAfter
		if first := s.refuse(err); ctx.Err() == nil && first {
			s.report(fmt.Errorf("joining: %w", err))
		}
		if errors.Is(err, errOtherProgram) {
			pause = wait.Jitter(s.opts.RenewEvery, 1) // two programs that find each other do not do so again
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// refuse records why this replica cannot join, or nil. It returns whether the reason should be
// reported: a replica that waits for the end of another program reports that once.
func (s *Set) refuse(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.refused
	s.refused = err
	return !errors.Is(err, errOtherProgram) || !errors.Is(last, errOtherProgram)
}

// await waits until all workers have synced. It returns an error if this replica cannot begin.
func (s *Set) await(ctx context.Context) error {
	if err := s.watched.WaitForSync(ctx); err != nil {
		return err
	}
	for _, lease := range s.watched.All() {
		if err := s.mark().Refuses(lease); err != nil {
			return err
		}
	}
	for _, w := range s.workers {
		if err := w.WaitForSync(ctx); err != nil {
			return fmt.Errorf("controller %s: %w", w.name, err)
		}
	}
	for n, src := range s.sources {
		if err := src.isRead(); err != nil {
			return fmt.Errorf("source %d of Source: %w", n+1, err)
		}
	}
	return nil
}

// hold takes and releases buckets until the session is over. When ctx ends, it releases all buckets.
func (s *Set) hold(ctx context.Context, n *session) {
	if !channel.Closed(s.synced) {
		close(s.synced)
	}
	klog.FromContext(ctx).V(2).Info("The replica has joined", "session", n.id)
	leave := make(chan struct{})
	var parts sync.WaitGroup
	parts.Go(func() { s.renew(n, leave) })
	parts.Go(func() { s.claim(n) })
	parts.Go(func() { s.fill(n) })
	done := ctx.Done()
	for {
		next, left := s.step(n)
		if left {
			s.passAll(n)
			s.mu.Lock()
			s.endLocked(n, nil)
			s.mu.Unlock()
			parts.Wait()
			s.leave(n)
			return
		}
		select {
		case <-n.ended:
			parts.Wait()
			s.step(n) // reports why
			return
		case <-done:
			done = nil
			s.mu.Lock()
			n.leave()
			s.mu.Unlock()
			close(leave)
		case <-s.wake:
		case <-time.After(next):
		}
	}
}

// leave deletes the Lease of a session that has no buckets any more. If that is refused, it writes into the Lease that the
// session has ended. Otherwise the others would leave buckets to it until LeaseDuration is over: a session that had no
// bucket to release may not have written that it leaves.
func (s *Set) leave(n *session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), s.opts.RenewEvery)
	defer cancel()
	err := s.remove(ctx, n.lease)
	if err == nil {
		return
	}
	s.report(fmt.Errorf("leaving: %w", err))
	if err := s.endOwn(ctx, n); err != nil && !apierrors.IsNotFound(err) {
		s.report(fmt.Errorf("leaving: ending the session: %w", err))
	}
}

// endOwn writes into the Lease of a session of this replica that the session has ended. It reads the Lease first: the end
// of the session may have cut off the answer to a renewal that the API server took.
func (s *Set) endOwn(ctx context.Context, n *session) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lease, err := s.leases.Get(ctx, n.lease.Name, metav1.GetOptions{})
		if err != nil || lease.UID != n.lease.UID || leases.ReadSession(lease).Ended {
			return err
		}
		lease = s.mark().On(lease, "", n.id)
		leases.End(lease)
		_, err = s.put(ctx, lease)
		return err
	})
}

func (s *Set) note(_ context.Context, e informer.Event[*coordinationv1.Lease]) error {
	deleted := e.Type == informer.EventDeleted
	s.mu.Lock()
	if e.Type == informer.EventUpdated && !leases.IsNewer(e.New, e.Old) { // the server was restored from a backup
		s.view.restored(e.New)
	}
	seen := s.view.note(e.Object(), deleted, time.Now())
	ours := seen != nil && s.session != nil && seen.ID == s.session.id
	if ours && s.session.heed(e.Object(), deleted, s.mark()) {
		s.endLocked(s.session, errEnded)
	}
	s.poke()
	s.mu.Unlock()
	if !ours && !deleted && (!s.opts.ByNamespace || s.ranges.Load() != nil) {
		s.learn(leases.ReadClaims(e.New))
	}
	return nil
}
