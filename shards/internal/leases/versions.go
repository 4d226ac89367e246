package leases

import "k8s.io/apimachinery/pkg/util/resourceversion"

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
