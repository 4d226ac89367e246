package leases

import (
	"fmt"
	"maps"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// byNamespace is the value of byAnnotation for Mark.ByNamespace.
const byNamespace = "namespace"

// Mark holds the fields that every Lease of a set records: the set, and how the replica divides keys.
type Mark struct {
	Set         string // the name of the set
	Buckets     int    // how many there are
	ByNamespace bool   // a bucket has whole namespaces
	Cut         string // the key of the replica's ranges of namespaces; "" if there are none
}

// On returns a copy of last with the mark and the holder. If last is nil, it returns a new Lease with
// this name.
func (m Mark) On(last *coordinationv1.Lease, name, holder string) *coordinationv1.Lease {
	lease := last.DeepCopy()
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	lease.Labels = maps.Clone(lease.Labels)
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	lease.Labels[setLabel] = m.Set
	by := ""
	if m.ByNamespace {
		by = byNamespace
	}
	annotate(lease, bucketsAnnotation, strconv.Itoa(m.Buckets))
	annotate(lease, byAnnotation, by)
	annotate(lease, cutAnnotation, m.Cut)
	annotate(lease, leaseAnnotation, string(lease.UID))
	lease.Spec.HolderIdentity = &holder
	return lease
}

// IsOn reports whether a Lease has the mark and this holder.
func (m Mark) IsOn(lease *coordinationv1.Lease, holder string) bool {
	return lease.Labels[setLabel] == m.Set && m.Differs(lease) == nil && Holder(lease) == holder
}

// Differs returns an error if a Lease shows that its holder divides keys in another way than this
// replica. Two replicas could then work on one key.
func (m Mark) Differs(lease *coordinationv1.Lease) error {
	if err := m.Refuses(lease); err != nil {
		return err
	}
	if Holder(lease) != "" && lease.Annotations[cutAnnotation] != m.Cut {
		return fmt.Errorf("the Lease %s is of a replica with other ranges of namespaces", lease.Name)
	}
	return nil
}

// Refuses returns an error if a Lease of the set has another number of buckets, or another
// ByNamespace.
func (m Mark) Refuses(lease *coordinationv1.Lease) error {
	if by := lease.Annotations[byAnnotation]; (by == byNamespace) != m.ByNamespace {
		return fmt.Errorf("the Lease %s divides by %q, Options.ByNamespace is %v: all replicas need the same", lease.Name, by, m.ByNamespace)
	}
	if n := lease.Annotations[bucketsAnnotation]; n != strconv.Itoa(m.Buckets) {
		return fmt.Errorf("the Lease %s has %q buckets, Options.Buckets is %d: all replicas need the same number", lease.Name, n, m.Buckets)
	}
	return nil
}

// Believed returns the Lease, or a copy without versions, buckets and claims if it is a copy of
// another Lease: a backup tool may have brought it from another cluster. Keys of deletes stay. It
// does no harm to reconcile them, and they may be of this cluster.
func Believed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	if of := lease.Annotations[leaseAnnotation]; of == "" || of == string(lease.UID) {
		return lease
	}
	lease = lease.DeepCopy()
	for _, key := range []string{holdsAnnotation, seenAnnotation, claimsAnnotation, diedAnnotation} {
		delete(lease.Annotations, key)
	}
	return lease
}
