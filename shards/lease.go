package shards

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// The label and the annotations of the Leases. Every Lease has those of the first group that it needs. The
// Lease of a session may have the next three, and that of a bucket the last two. Both may have the two in
// between.
const (
	setLabel          = prefix + "set"
	bucketsAnnotation = prefix + "buckets"
	byAnnotation      = prefix + "by"     // byNamespace, or missing
	rangesAnnotation  = prefix + "ranges" // of the Lease that has the ranges of namespaces
	cutAnnotation     = prefix + "cut"    // the key of the holder's ranges
	leaseAnnotation   = prefix + "lease"  // the UID of the Lease, missing when it is created

	workersAnnotation = prefix + "workers" // the keys of each worker, by name

	holdsAnnotation = prefix + "holds" // the buckets that the session has
	idleAnnotation  = prefix + "idle"  // the session takes no buckets, because it has just begun, or ends
	lateAnnotation  = prefix + "late"  // the caches of the session are behind, or perhaps so
	endedAnnotation = prefix + "ended" // another replica has ended the session

	seenAnnotation    = prefix + "seen"    // the versions that the holder had seen, by worker
	claimsAnnotation  = prefix + "handled" // claims
	deletesAnnotation = prefix + "deletes" // keys of deletes that the holder must handle, by worker
	diedAnnotation    = prefix + "died"    // the last holder that has worked had no time to say what it had seen

	prefix = "shards.customcacheinformer.github.io/"
)

// byNamespace is the value of byAnnotation for Options.ByNamespace.
const byNamespace = "namespace"

// maxDeletes is how many bytes the keys of deletes may have in a Lease. Kubernetes allows 256 KiB for
// all annotations.
const maxDeletes = 200 << 10

// sessionLease is the Lease that a replica renews.
type sessionLease struct {
	id       string // spec.holderIdentity
	duration time.Duration
	holds    Buckets
	workers  map[string]string // the keys of each, by name; nil if they are not known
	seen     map[string]Versions
	idle     bool
	late     bool
	ended    bool
}

// sessionName returns the name of the Lease of a session. nonce is the part of its id that is new.
func sessionName(set, nonce string) string { return set + "-session-" + nonce }

// nonceOf returns the part of a session's id that is new.
func nonceOf(id string) string { return id[strings.LastIndex(id, "_")+1:] }

// bucketName returns the name of the Lease of a bucket.
func bucketName(set string, bucket int) string { return set + "-bucket-" + strconv.Itoa(bucket) }

// bucketOf returns the bucket of a Lease, and false if it is not the Lease of a bucket.
func bucketOf(set string, lease *coordinationv1.Lease) (bucket int, ok bool) {
	n, ok := strings.CutPrefix(lease.Name, set+"-bucket-")
	if !ok {
		return 0, false
	}
	bucket, err := strconv.Atoi(n)
	return bucket, err == nil && bucket >= 0 && lease.Name == bucketName(set, bucket)
}

// rangesName returns the name of the Lease with the ranges of namespaces.
func rangesName(set string) string { return set + "-ranges" }

// newLease returns a Lease of the set.
func (s *Set) newLease(name, holder string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.mark(lease, holder)
	return lease
}

// mark writes into a Lease the parts by which replicas know it, also where somebody has changed them.
func (s *Set) mark(lease *coordinationv1.Lease, holder string) {
	lease.Labels = maps.Clone(lease.Labels)
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	lease.Labels[setLabel] = s.opts.Name
	by := ""
	if s.opts.ByNamespace {
		by = byNamespace
	}
	annotate(lease, bucketsAnnotation, strconv.Itoa(s.opts.Buckets))
	annotate(lease, byAnnotation, by)
	annotate(lease, cutAnnotation, s.rangesKey())
	annotate(lease, leaseAnnotation, string(lease.UID))
	lease.Spec.HolderIdentity = &holder
}

// believed returns a Lease as it is, or, if it is a copy of another one, without what replicas have written
// into it about versions and buckets: a backup tool may have brought it from another cluster. Keys of
// deletes stay. It does no harm to reconcile them, and they may be of this cluster.
func believed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	if of := lease.Annotations[leaseAnnotation]; of == "" || of == string(lease.UID) {
		return lease
	}
	lease = lease.DeepCopy()
	for _, key := range []string{holdsAnnotation, seenAnnotation, claimsAnnotation, diedAnnotation} {
		delete(lease.Annotations, key)
	}
	return lease
}

// isMarked reports whether a Lease has the parts that mark writes.
func (s *Set) isMarked(lease *coordinationv1.Lease, holder string) bool {
	return lease.Labels[setLabel] == s.opts.Name && s.differs(lease) == nil && holderOf(lease) == holder
}

// differs returns an error if a Lease says that its holder has other buckets than this replica. Two
// replicas could then work on one key.
func (s *Set) differs(lease *coordinationv1.Lease) error {
	if err := s.opts.refuses(lease); err != nil {
		return err
	}
	if holderOf(lease) != "" && lease.Annotations[cutAnnotation] != s.rangesKey() {
		return fmt.Errorf("the Lease %s is of a replica with other ranges of namespaces", lease.Name)
	}
	return nil
}

// readSession reads the Lease of a session. A part that cannot be read counts as missing: the
// session then keeps fewer promises, and other replicas keep what they know for longer.
func readSession(lease *coordinationv1.Lease) (s sessionLease) {
	s.id = holderOf(lease)
	if n := lease.Spec.LeaseDurationSeconds; n != nil {
		s.duration = time.Duration(max(0, *n)) * time.Second
	}
	s.workers = parse[map[string]string](lease.Annotations[workersAnnotation])
	s.holds = parseBuckets(lease.Annotations[holdsAnnotation])
	s.seen = parse[map[string]Versions](lease.Annotations[seenAnnotation])
	s.idle = lease.Annotations[idleAnnotation] != ""
	s.late = lease.Annotations[lateAnnotation] != ""
	s.ended = lease.Annotations[endedAnnotation] != ""
	return s
}

// holderOf returns spec.holderIdentity.
func holderOf(lease *coordinationv1.Lease) string {
	if lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// tokenOf returns spec.leaseTransitions.
func tokenOf(lease *coordinationv1.Lease) int32 {
	if lease == nil || lease.Spec.LeaseTransitions == nil {
		return 0
	}
	return *lease.Spec.LeaseTransitions
}

// annotate sets an annotation, or removes it if value is "".
func annotate(lease *coordinationv1.Lease, key, value string) {
	lease.Annotations = maps.Clone(lease.Annotations)
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	if value == "" {
		delete(lease.Annotations, key)
		return
	}
	lease.Annotations[key] = value
}

// formatBuckets returns b as ranges, such as "0-3,7".
func formatBuckets(b Buckets) string {
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

// parseBuckets reads the text of formatBuckets. It leaves out what it cannot read.
func parseBuckets(text string) Buckets {
	b := sets.New[int]()
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < 0 || last >= maxBuckets {
			continue
		}
		for n := first; n <= last; n++ {
			b.Insert(n)
		}
	}
	return b
}

// format returns v as JSON.
func format(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types of this package have nothing that JSON lacks
	}
	return string(text)
}

// parse reads the text of format. It returns the zero T if it cannot be read.
func parse[T any](text string) T {
	var v, none T
	if json.Unmarshal([]byte(text), &v) != nil {
		return none
	}
	return v
}
