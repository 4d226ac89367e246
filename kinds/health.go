package kinds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/channel"
)

// Health is the state of a [Set] at one moment, as [Set.Health] returns it. It is the [informer.MemberHealth] of a Set, and may
// be copied.
type Health struct {
	Name           string       `json:"name"`                     // Options.Name
	Started        bool         `json:"started"`                  // Run was called
	Stopped        bool         `json:"stopped"`                  // Run has returned
	Synced         bool         `json:"synced"`                   // WaitForSync of the set returns nil from now on
	Reads          bool         `json:"reads"`                    // Run of Set.Informer was called
	Polls          bool         `json:"polls"`                    // discovery is asked every 30 s, because the CRDs or the APIServices cannot be listed
	CRDError       string       `json:"crdError,omitempty"`       // why the CRDs cannot be read now
	ServiceError   string       `json:"serviceError,omitempty"`   // why the APIServices cannot be read now
	DiscoveryError string       `json:"discoveryError,omitempty"` // why the last discovery has failed, wholly or for some groups
	Kinds          []KindHealth `json:"kinds"`                    // the kinds that are wanted or acquired, sorted by name
}

// KindHealth is the state of one kind in a [Health]. A kind that is [Parked] after it was read keeps Resource, Version and Namespaced.
type KindHealth struct {
	Name       string    `json:"name"`               // Kind.String
	Kind       Kind      `json:"kind"`               // the Kind that was acquired or is wanted
	State      State     `json:"state"`              // whether the kind is read
	Reason     string    `json:"reason,omitempty"`   // why the state is Waiting or Parked
	Since      time.Time `json:"since"`              // when the state began
	Resource   string    `json:"resource,omitempty"` // the name of the kind in the path of requests, such as "deployments"; "" while the kind is not read
	Version    string    `json:"version,omitempty"`  // the version in which the objects are read; "" while the kind is not read
	Namespaced bool      `json:"namespaced"`         // whether the kind has namespaces; false while the kind is not read
	Users      int       `json:"users"`              // how many leases of the kind are not released
	Wanted     bool      `json:"wanted"`             // whether Options.Wanted wants the kind
}

// GroupVersionResource returns the resource from which the objects are read, for a client that writes them. It returns the zero
// value until the kind is read. If the kind is [Parked] after that, it still returns the resource.
func (k KindHealth) GroupVersionResource() schema.GroupVersionResource {
	if k.Resource == "" {
		return schema.GroupVersionResource{}
	}
	return schema.GroupVersionResource{Group: k.Kind.Group, Version: k.Version, Resource: k.Resource}
}

// MemberHealth returns the result of Health, for an [informer.Group]. It does not block.
func (s *Set[T]) MemberHealth() informer.MemberHealth { return s.Health() }

// Health returns the state of the set and of its kinds. It does not block.
func (s *Set[T]) Health() Health {
	h := Health{
		Name: s.name, Started: channel.Closed(s.started), Stopped: channel.Closed(s.stopped), Synced: channel.Closed(s.synced), Reads: s.objects.Health().Started,
		CRDError: text(s.crds.Health().SourceError), ServiceError: text(s.services.Health().SourceError), Kinds: []KindHealth{},
	}
	sources := s.sources()
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Polls = s.catalog.blind || s.catalog.servicesForbidden
	h.DiscoveryError = text(s.catalog.failure)
	for _, group := range slices.Sorted(maps.Keys(s.catalog.broken)) {
		h.DiscoveryError = cmp.Or(h.DiscoveryError, fmt.Sprintf("group %s: %v", group, s.catalog.broken[group]))
	}
	for _, m := range s.members {
		h.Kinds = append(h.Kinds, m.health(sources[m.name]))
	}
	slices.SortFunc(h.Kinds, func(a, b KindHealth) int { return cmp.Compare(a.Name, b.Name) })
	return h
}

// sources returns the health of the sources by name.
func (s *Set[T]) sources() map[string]informer.SourceHealth {
	all := map[string]informer.SourceHealth{}
	for _, n := range s.objects.Health().Clusters {
		all[n.Cluster] = n
	}
	return all
}

// Find returns the state of one kind. name is [Kind.String], as [informer.Event.Cluster] returns it. ok is false if the kind is
// neither wanted nor acquired. Find does not block.
func (s *Set[T]) Find(name string) (h KindHealth, ok bool) {
	var source informer.SourceHealth
	if last, failed := s.failed.Load(name); failed { // otherwise a look at all sources would be a waste
		if source = s.sources()[name]; source.SourceError == nil {
			s.failed.CompareAndDelete(name, last)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.members[name]
	if ok {
		h = m.health(source)
	}
	return h, ok
}

// health returns the KindHealth of m. A kind that is read, but whose source fails, is shown as Parked.
func (m *member) health(source informer.SourceHealth) KindHealth {
	h := KindHealth{Name: m.name, Kind: m.kind, State: m.state, Reason: m.reason, Since: m.since, Users: m.users, Wanted: m.wanted}
	if m.at != nil {
		h.Resource, h.Version, h.Namespaced = m.at.resource.Resource, m.at.resource.Version, m.at.namespaced
	}
	if m.state == Reading && !source.SourceFailingSince.IsZero() { // a source may also have an error that is only a warning
		h.State, h.Reason, h.Since = Parked, source.SourceError.Error(), source.SourceFailingSince
	}
	return h
}

// HasRun reports whether Run was called. It returns Started.
func (h Health) HasRun() bool { return h.Started }

// Ready returns nil once the set has synced, whatever the states of its kinds are. Before that, it returns an error with the
// reason, if one is known. Once Run has returned, Ready returns an error that wraps [informer.ErrStopped].
func (h Health) Ready() error {
	switch {
	case h.Stopped:
		return fmt.Errorf("kinds %s: %w", h.Name, informer.ErrStopped)
	case !h.Started:
		return fmt.Errorf("kinds %s: has not started", h.Name)
	case !h.Reads:
		return fmt.Errorf("kinds %s: its informer has not started: add Set.Informer to the group", h.Name)
	case !h.Synced:
		why := cmp.Or(h.DiscoveryError, h.CRDError, h.ServiceError, "the first kinds are not listed")
		for _, k := range h.Kinds {
			if k.State == Parked {
				why += fmt.Sprintf("; %s: %s", k.Name, k.Reason)
				break
			}
		}
		return fmt.Errorf("kinds %s: has not synced: %s", h.Name, why)
	}
	return nil
}

// Parked returns how many kinds are parked, and how long the first of them has been parked. Package metrics/prometheus shows
// both.
func (h Health) Parked() (n int, longest time.Duration) {
	for _, k := range h.Kinds {
		if k.State == Parked {
			n++
			longest = max(longest, time.Since(k.Since))
		}
	}
	return n, longest
}

// Live always returns nil, because a restart does not help a set.
func (h Health) Live() error { return nil }

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
