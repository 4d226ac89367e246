package leases

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Versions holds the versions of each worker, by source.
type Versions map[string]map[string]string

// Latest returns, for each source, the later of the two versions.
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

// ComparableWith returns the versions of v that can be compared with the versions in other.
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

// HaveReached reports whether v has the versions in goal, or later ones, of all sources.
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

// IsAsNew reports whether version is equal to other or later. It returns false if the two cannot
// be compared.
func IsAsNew(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order >= 0
}
