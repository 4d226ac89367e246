package leases

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// maxDeletes is how many bytes the keys of deletes may have in a Lease. Kubernetes allows 256 KiB for
// all annotations.
const maxDeletes = 200 << 10

// Deletes are the keys of deletes, by worker.
type Deletes map[string][]string

// Number returns how many keys there are.
func (d Deletes) Number() (n int) {
	for _, keys := range d {
		n += len(keys)
	}
	return n
}

// ReadDeletes returns the deletes in the Lease of a bucket.
func ReadDeletes(lease *coordinationv1.Lease) Deletes {
	return parse[Deletes](lease.Annotations[deletesAnnotation])
}

// HasDeletes reports whether the Lease of a bucket has any.
func HasDeletes(lease *coordinationv1.Lease) bool { return lease.Annotations[deletesAnnotation] != "" }

// Write writes the deletes into the Lease of a bucket, in place of those that it has. It reports whether
// that has changed the Lease.
func (d Deletes) Write(lease *coordinationv1.Lease) bool {
	text := ""
	if len(d) > 0 {
		text = format(d)
	}
	before := lease.Annotations[deletesAnnotation]
	annotate(lease, deletesAnnotation, text)
	return text != before
}

// AddTo adds deletes to the Lease of a bucket. It returns those for which there is room.
func (d Deletes) AddTo(lease *coordinationv1.Lease) (added Deletes) {
	there := ReadDeletes(lease)
	for ; d.Number() > 0; d = d.half() {
		if text := format(d.union(there)); len(text) <= maxDeletes {
			annotate(lease, deletesAnnotation, text)
			return d
		}
	}
	return nil
}

// union returns the keys of both, sorted.
func (d Deletes) union(other Deletes) Deletes {
	all := Deletes{}
	for _, m := range []Deletes{d, other} {
		for name, keys := range m {
			all[name] = append(all[name], keys...)
		}
	}
	for name, keys := range all {
		slices.Sort(keys)
		all[name] = slices.Compact(keys)
	}
	return all
}

// half returns the first half of the keys of each worker.
func (d Deletes) half() Deletes {
	some := Deletes{}
	for name, keys := range d {
		if n := len(keys) / 2; n > 0 {
			some[name] = keys[:n]
		}
	}
	return some
}
