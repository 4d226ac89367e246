package leases

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// Session is the content of the Lease that a replica renews.
type Session struct {
	ID       string // spec.holderIdentity
	Duration time.Duration
	Holds    sets.Set[int]     // buckets
	Workers  map[string]string // the keys of each, by name; nil if they are not known
	Seen     Versions          // nil if they are not known
	Idle     bool
	Late     bool
	Ended    bool // Write does not change it
}

// ReadSession reads the Lease of a session. A missing part is zero. It is safe: the session then
// promises less, and other replicas keep what they know for longer.
func ReadSession(lease *coordinationv1.Lease) (s Session) {
	s.ID = Holder(lease)
	if n := lease.Spec.LeaseDurationSeconds; n != nil {
		s.Duration = time.Duration(max(0, *n)) * time.Second
	}
	s.Workers = parse[map[string]string](lease.Annotations[workersAnnotation])
	s.Holds = parseBuckets(lease.Annotations[holdsAnnotation])
	s.Seen = parse[Versions](lease.Annotations[seenAnnotation])
	s.Idle = lease.Annotations[idleAnnotation] != ""
	s.Late = lease.Annotations[lateAnnotation] != ""
	s.Ended = lease.Annotations[endedAnnotation] != ""
	return s
}

// Write writes the session into its Lease, which must have a [Mark]. now is the time of the renewal,
// which is only for people: no replica reads it. If s.Seen is nil, the versions in the Lease stay.
func (s Session) Write(lease *coordinationv1.Lease, now time.Time) {
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now))
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(s.Duration / time.Second))
	annotate(lease, workersAnnotation, format(s.Workers))
	annotate(lease, holdsAnnotation, formatBuckets(s.Holds))
	if s.Seen != nil {
		annotate(lease, seenAnnotation, format(s.Seen))
	}
	annotate(lease, idleAnnotation, flagText(s.Idle))
	annotate(lease, lateAnnotation, flagText(s.Late))
}

// End writes into the Lease of a session that another replica has ended it.
func End(lease *coordinationv1.Lease) { annotate(lease, endedAnnotation, flagText(true)) }

// Lacks returns the names of the workers in here that a session does not have, sorted. A session
// whose Lease does not name its workers lacks none.
func (s Session) Lacks(here map[string]string) (names []string) {
	if s.Workers == nil {
		return nil
	}
	for name, keys := range here {
		if s.Workers[name] != keys {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// MaxBuckets keeps the list of a replica's buckets, and the number of Leases, small.
const MaxBuckets = 1024

// formatBuckets returns b as ranges, such as "0-3,7".
func formatBuckets(b sets.Set[int]) string {
	var parts []string
	all := slices.Sorted(maps.Keys(b))
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last+1] == all[last]+1 {
			last++
		}
		if last == i {
			parts = append(parts, strconv.Itoa(all[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", all[i], all[last]))
		}
		i = last + 1
	}
	return strings.Join(parts, ",")
}

// parseBuckets reads text that formatBuckets has returned. It leaves out what it cannot read.
func parseBuckets(text string) sets.Set[int] {
	b := sets.New[int]()
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < 0 || last >= MaxBuckets {
			continue
		}
		for n := first; n <= last; n++ {
			b.Insert(n)
		}
	}
	return b
}
