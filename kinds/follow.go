package kinds

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
)

const (
	pollPause = 30 * time.Second // between two discoveries, while there is a reason for them
	missPause = 10 * time.Second // how long discovery must not show a kind before the kind counts as gone
	lagTime   = 5 * time.Minute  // how long it may take until discovery shows the kinds of a new APIService
	minPause  = 2 * time.Second  // between two discoveries, whatever the reason
	crdWait   = 5 * time.Second  // how long the first discovery waits for the CRDs and the APIServices
	firstWait = 30 * time.Second
)

func (s *Set[T]) putCRD(obj *unstructured.Unstructured) {
	d := define(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked(s.catalog.put(d)...)
}

func (s *Set[T]) removeCRD(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked(s.catalog.remove(name)...)
	s.ask() // which takes longer than coldTime
}

// putService takes an APIService. The kinds of its group may have changed, and only discovery shows how.
func (s *Set[T]) putService(obj *unstructured.Unstructured) {
	of, own := serve(obj)
	if !own {
		s.removeService(obj.GetName())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, had := s.catalog.services[obj.GetName()]
	if s.catalog.putService(obj.GetName(), of); !had || before != of {
		s.servicesChanged = time.Now()
		s.settleGroupLocked(of.group)
		if s.catalog.asked {
			s.ask()
		}
	}
}

func (s *Set[T]) removeService(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, had := s.catalog.services[name]
	if s.catalog.removeService(name); had {
		s.servicesChanged = time.Now()
		s.settleGroupLocked(of.group)
		s.ask()
	}
}

// settleGroupLocked settles the members of an API group.
func (s *Set[T]) settleGroupLocked(group string) {
	for of := range s.byKind {
		if of.Group == group {
			s.settleLocked(of)
		}
	}
}

// settleAllLocked settles all members, and makes members for the kinds that Wanted asks for.
func (s *Set[T]) settleAllLocked() {
	kinds := map[schema.GroupKind]bool{}
	for of := range s.byKind {
		kinds[of] = true
	}
	if s.wanted != nil {
		for of := range s.catalog.offers() {
			kinds[of] = true
		}
	}
	for of := range kinds {
		s.settleLocked(of)
	}
}

// look notes whether the set can list the CRDs and the APIServices. It cannot if the server forbids that or, for the CRDs,
// if the first list fails.
func (s *Set[T]) look() {
	failing, synced := s.crds.Health().SourceError, channel.Closed(s.crds.Synced())
	forbidden, servicesListed := apierrors.IsForbidden(s.services.Health().SourceError), channel.Closed(s.services.Synced())
	s.mu.Lock()
	defer s.mu.Unlock()
	blind := apierrors.IsForbidden(failing) || !synced && failing != nil
	listed := synced && !blind
	changed := blind != s.catalog.blind || listed != s.catalog.listed
	if blind && !s.catalog.blind { // the last discovery may be older than the CRDs that were known
		s.catalog.asked = false
		for _, m := range s.members {
			m.away = absence{}
		}
	}
	s.catalog.blind, s.catalog.listed, s.catalog.servicesForbidden, s.catalog.servicesListed = blind, listed, forbidden, servicesListed
	if changed {
		s.settleAllLocked()
	}
}

// discover asks discovery until ctx ends: once at the start, and then whenever something may have changed that only discovery
// shows.
func (s *Set[T]) discover(ctx context.Context) {
	began, reported := time.Now(), false
	for listed := s.awaitSources(ctx); ctx.Err() == nil; {
		s.look()
		again, err := s.learn(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !reported {
			s.report(ctx, fmt.Errorf("kinds %s: discovery: %w", s.name, err))
		}
		reported = err != nil
		if !channel.Closed(s.known) {
			if s.knows(time.Since(began)) {
				close(s.known)
			} else {
				again = missPause // sooner than later
			}
		}
		var poll <-chan time.Time
		if again > 0 {
			poll = time.After(again)
		}
		select {
		case <-poll:
		case <-listed:
			listed = nil
		case <-s.wake:
		case <-ctx.Done():
		}
		select {
		case <-time.After(minPause):
		case <-ctx.Done():
		}
	}
}

// knows reports whether the set knows the first kinds. since is how long it has been asking. If discovery fails for firstWait, the
// kinds that have CRDs are enough.
func (s *Set[T]) knows(since time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.catalog
	return (c.listed || c.blind) && c.asked || c.listed && since >= firstWait
}

// awaitSources waits until the CRDs and the APIServices are listed or cannot be listed, but at most crdWait. It returns a channel
// that is closed when the CRDs are listed, or nil if they are listed already.
func (s *Set[T]) awaitSources(ctx context.Context) (listed <-chan struct{}) {
	listed, patience := s.crds.Synced(), time.After(crdWait)
	for _, inf := range []*informer.SinkInformer[*unstructured.Unstructured]{s.crds, s.services} {
		for !channel.Closed(inf.Synced()) && inf.Health().SourceError == nil {
			select {
			case <-inf.Synced():
			case <-s.wake: // one of them has failed
			case <-patience:
				return listed
			case <-ctx.Done():
				return nil
			}
		}
	}
	if channel.Closed(listed) {
		return nil
	}
	return listed
}

// learn asks discovery once. again is after what time the set must ask again even if nothing happens, or 0 if it need not.
// learn also returns an error if the answer is not complete for some groups.
func (s *Set[T]) learn(ctx context.Context) (again time.Duration, err error) {
	groups, lists, err := ask(ctx, s.discovery)
	a, failed := readAnswer(groups, lists, err)
	if ctx.Err() != nil {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed != nil {
		s.catalog.failure = failed
		s.settleAllLocked()
		return pollPause, failed
	}
	for _, m := range s.members {
		// Another API server, which knows less yet, may have answered once.
		switch complete := a.broken[m.kind.Group] == nil; {
		case a.found[m.kind.GroupKind()] != nil:
			m.away = absence{}
		case complete && m.away.since.IsZero():
			m.away.since = time.Now()
		case complete:
			m.away.long = time.Since(m.away.since) >= missPause
		}
	}
	s.catalog.learn(a)
	s.settleAllLocked()
	switch {
	case s.hasLocked(s.misses):
		return missPause, err
	case !s.catalog.listed || s.catalog.servicesForbidden || !s.catalog.servicesListed || err != nil || s.hasLocked(isHidden):
		return pollPause, err
	case time.Since(s.servicesChanged) < lagTime && (s.wanted != nil || s.hasLocked(isUnknown)):
		return pollPause, err
	}
	return 0, nil
}

// misses reports whether a kind will count as gone unless discovery shows it again. The caller holds mu.
func (s *Set[T]) misses(m *member) bool {
	at, away := s.placeLocked(m), m.away
	away.long = true
	return at != nil && s.catalog.find(m.kind, at, away).gone
}

// isHidden reports whether discovery does not show a kind that is not gone. Another API server may have answered.
func isHidden(m *member) bool { return m.at != nil && m.at.uid == "" && m.halted }

func isUnknown(m *member) bool { return m.at == nil }

// hasLocked reports whether such returns true for a member.
func (s *Set[T]) hasLocked(such func(*member) bool) bool {
	for _, m := range s.members {
		if such(m) {
			return true
		}
	}
	return false
}

// trouble returns why the set cannot read CRDs, APIServices, discovery or a kind. It returns nil if no reason is known.
func (s *Set[T]) trouble() error {
	s.mu.Lock()
	failure := s.catalog.failure
	of := maps.Clone(s.members)
	s.mu.Unlock()
	for _, n := range s.objects.Health().Clusters {
		if of[n.Cluster] != nil && n.SourceError != nil {
			return n.SourceError
		}
	}
	for _, err := range []error{failure, s.crds.Health().SourceError, s.services.Health().SourceError} {
		if err != nil {
			return err
		}
	}
	return nil
}

var _ informer.Member = (*Set[*unstructured.Unstructured])(nil)
