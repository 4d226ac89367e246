package leases

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Versions has the versions of each worker, by source.
type Versions map[string]map[string]string

// Latest returns the later of the versions of each source.
func (v Versions) Latest(other Versions) Versions {
	all := Versions{}
	for _, seen := range []Versions{v, other} {
		for name, versions := range seen {
			if all[name] == nil {
				all[name] = map[string]string{}
			}
			for source, version := range versions {
				order, err := resourceversion.CompareResourceVersion(all[name][source], version)
				if err != nil || order < 0 {
					all[name][source] = version
				}
			}
		}
	}
	return all
}

// ComparableWith returns the versions that can be compared with those of other.
func (v Versions) ComparableWith(other Versions) Versions {
	both := Versions{}
	for name, versions := range v {
		both[name] = map[string]string{}
		for source, version := range versions {
			if _, err := resourceversion.CompareResourceVersion(version, other[name][source]); err == nil {
				both[name][source] = version
			}
		}
	}
	return both
}

// HaveReached reports whether the versions have all those of goal.
func (v Versions) HaveReached(goal Versions) bool {
	for name, sources := range goal {
		for source, version := range sources {
			if !IsAsNew(v[name][source], version) {
				return false
			}
		}
	}
	return true
}

// IsAsNew reports whether a version is another one or a later one.
func IsAsNew(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order >= 0
}

// Past is what is known of the holder of a bucket before this one. It stands in the Lease of the
// bucket.
type Past struct {
	Seen Versions // if the holder has died, it may have seen more
	Died bool
}

// ReadPast reads the past from the Lease of a bucket.
func ReadPast(lease *coordinationv1.Lease) Past {
	return Past{Seen: parse[Versions](lease.Annotations[seenAnnotation]), Died: lease.Annotations[diedAnnotation] != ""}
}

// Write writes the past into the Lease of a bucket.
func (p Past) Write(lease *coordinationv1.Lease) {
	annotate(lease, seenAnnotation, format(p.Seen))
	annotate(lease, diedAnnotation, flagText(p.Died))
}
