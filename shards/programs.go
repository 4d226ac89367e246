package shards

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// This file compares the workers of this replica with the workers of other replicas, as the Leases of sessions
// show them. All replicas of a program have the same workers, except during a rolling update.

// errOtherProgram is wrapped by the error of a replica that finds a working replica without any of its
// workers.
var errOtherProgram = errors.New("another program has a set of this name in this namespace")

// workersHere returns the kind of the keys of each worker, by name. The workers do not change after Run was
// called.
func (s *Set) workersHere() map[string]string {
	here := map[string]string{}
	for _, w := range s.workers {
		here[w.name] = w.keys
	}
	return here
}

// isOtherProgram returns an error if a session has none of the workers of this replica.
func (s *Set) isOtherProgram(other *seenSession) error {
	here := s.workersHere()
	if len(other.Lacks(here)) < len(here) {
		return nil
	}
	return fmt.Errorf("%w: the replica %s has %s, and this one has %s (see Options.Name)", errOtherProgram, other.ID, describe(other.Workers), describe(here))
}

// isOursLocked reports whether a replica that takes buckets has a worker of this one. Then another program does
// not join, although the Lease of its attempt may still be there.
func (s *Set) isOursLocked(now time.Time) bool {
	for _, seen := range s.view.sessions {
		if seen.mayTake(&s.opts, now) && seen.Workers != nil && s.isOtherProgram(seen) == nil {
			return true
		}
	}
	return false
}

func describe(workers map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(workers)) {
		all = append(all, fmt.Sprintf("%s (keys: %s)", name, workers[name]))
	}
	return strings.Join(all, ", ")
}

// countUnservedLocked counts the buckets whose holder lacks a worker of this replica. It reports an error when
// the lacking workers change.
func (s *Set) countUnservedLocked(now time.Time) {
	here, lacking, last := s.workersHere(), map[string]bool{}, s.unserved
	u := unserved{since: last.since}
	for b := range s.view.buckets {
		holder := s.view.holder(b, now)
		if holder == nil || !holder.mayWork(&s.opts, now) {
			continue
		}
		names := holder.Lacks(here)
		for _, name := range names {
			lacking[name] = true
		}
		if len(names) > 0 {
			u.buckets++
		}
	}
	u.workers = slices.Sorted(maps.Keys(lacking))
	switch {
	case u.buckets == 0:
		u.since = time.Time{}
	case u.since.IsZero():
		u.since = now
	}
	s.unserved = u
	if u.buckets > 0 && !slices.Equal(u.workers, last.workers) {
		s.later(fmt.Errorf("%d buckets are with replicas that do not have %s: these keys wait until other replicas have the buckets",
			u.buckets, strings.Join(u.workers, ", ")))
	}
}
