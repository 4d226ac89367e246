package kinds

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/customcacheinformer/informer"
)

// memberLocked returns the member of a kind. It makes the member if there is none.
func (s *Set[T]) memberLocked(k Kind) *member {
	m := s.members[k.String()]
	if m == nil {
		m = &member{kind: k, name: k.String(), state: Waiting, since: time.Now(), changed: make(chan struct{})}
		s.members[m.name] = m
		s.byKind[k.GroupKind()] = append(s.byKind[k.GroupKind()], m)
	}
	return m
}

// dropLocked forgets a member that nothing uses. The source of the member stops, and its objects are
// dropped without events.
func (s *Set[T]) dropLocked(m *member) {
	if m.users > 0 || m.wanted || s.members[m.name] != m {
		return
	}
	s.leaveLocked(m, informer.LeaveSilently)
	delete(s.members, m.name)
	of := m.kind.GroupKind()
	if s.byKind[of] = slices.DeleteFunc(s.byKind[of], func(o *member) bool { return o == m }); len(s.byKind[of]) == 0 {
		delete(s.byKind, of)
	}
	s.failed.Delete(m.name)
}

// settleLocked brings the members of some kinds to the state that follows from the catalog.
func (s *Set[T]) settleLocked(kinds ...schema.GroupKind) {
	for _, of := range kinds {
		if o, ok := s.catalog.offer(of); ok && s.wanted != nil {
			all := Kind{Group: of.Group, Kind: of.Kind}
			if _, err := all.checked(); err != nil {
				// Its name may be that of another kind, such as Pod@v1. An API server refuses such a CRD.
			} else if s.wanted(o) {
				s.memberLocked(all).wanted = true
			} else if m := s.members[all.String()]; m != nil {
				m.wanted = false
				s.dropLocked(m)
			}
		}
		for _, m := range slices.Clone(s.byKind[of]) {
			s.settleMemberLocked(m)
		}
	}
}

// settleMemberLocked brings a member to its state. The objects of a kind that is gone are deleted. A kind that is served is
// read, and Parked if it soon will not be. A kind that is read but not served is Parked. Any other is Waiting.
func (s *Set[T]) settleMemberLocked(m *member) {
	f := s.catalog.find(m.kind, s.placeLocked(m), m.away)
	switch {
	case f.gone:
		s.leaveLocked(m, informer.LeaveDeleted)
		m.become(Waiting, f.why)
		m.wanted = false
		s.dropLocked(m)
	case f.served:
		m.away = absence{} // of a time before
		if err := s.readLocked(m, f.place); err != nil {
			m.become(Waiting, err.Error())
		} else if f.why != "" {
			m.become(Parked, f.why)
		} else {
			m.become(Reading, "")
		}
	case s.placeLocked(m) != nil:
		m.halted = true
		m.become(Parked, f.why)
	default:
		m.become(Waiting, f.why)
	}
}

// placeLocked returns where a kind is read. If only the Durable has objects of the kind, it returns an
// unknown place, and nil if nothing is known.
func (s *Set[T]) placeLocked(m *member) *place {
	if m.at == nil && s.durable && slices.Contains(s.objects.Engaged(), m.name) {
		return &place{guessed: true}
	}
	return m.at
}

// readLocked makes a member read its kind at a place. A kind with another resource, scope or CRD than before moves. If the
// source has failed, or the kind was not served, the source is replaced, so that its pause ends.
func (s *Set[T]) readLocked(m *member, p place) (err error) {
	from := informer.ClusterSource{Source: s.source(p, m.kind.Namespace), TweakListOptions: m.kind.tweak(), UID: m.uid}
	last, _ := s.failed.Load(m.name)
	failed := last != nil && last != m.woken
	at := m.at
	if at != nil { // the UID may not be known, before or now
		at.uid, p.uid = cmp.Or(at.uid, p.uid), cmp.Or(p.uid, at.uid)
	}
	switch {
	case at == nil:
		// Over a Durable, each start lists, because the objects may be of another version.
		m.uid = uuid.NewUUID()
		from.UID = m.uid
		if err = s.objects.Engage(m.name, from); err != nil {
			return err
		}
	case at.resource != p.resource || at.namespaced != p.namespaced || at.uid != p.uid:
		// Some objects of a CRD that was created again may be there already, and stay.
		err = s.objects.Move(m.name, from)
	case failed || m.halted: // the source may be in a long pause
		err = s.objects.Replace(m.name, from)
	}
	m.at, m.halted, m.woken = &p, false, last
	return err
}

func (s *Set[T]) leaveLocked(m *member, leave informer.Leave) {
	m.at, m.away, m.halted = nil, absence{}, false
	m.signal()
	_, err := s.objects.Disengage(m.name, leave)
	if err != nil && !errors.Is(err, informer.ErrNotEngaged) && !errors.Is(err, informer.ErrStopped) {
		m.reason = err.Error()
	}
}
