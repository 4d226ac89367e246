// Package version compares resourceVersions without allocating memory, and gives exact ones to a [Follower].
package version

import (
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Highest is the highest of some versions. One goroutine changes it, and any may read it. Nearly
// every version is a number of 64 bits, for which no memory is allocated.
type Highest struct {
	number atomic.Uint64          // 0 if there is none
	other  atomic.Pointer[string] // set for a version that is not such a number; takes precedence over number
}

// Raise notes a version. If two versions cannot be compared, the later call counts.
func (h *Highest) Raise(version string) {
	if version == "" || version == "0" {
		return
	}
	n := numberOf(version)
	if n == 0 || h.other.Load() != nil {
		h.raiseOther(version, n)
	} else if n > h.number.Load() {
		h.number.Store(n)
	}
}

func (h *Highest) raiseOther(version string, n uint64) {
	if order, err := resourceversion.CompareResourceVersion(version, h.Get()); err == nil && order <= 0 {
		return
	}
	if n == 0 {
		h.other.Store(&version)
		return
	}
	h.number.Store(n)
	h.other.Store(nil)
}

// Reset forgets all versions.
func (h *Highest) Reset() {
	h.number.Store(0)
	h.other.Store(nil)
}

// Get returns the highest version, or "" if there is none.
func (h *Highest) Get() string {
	if other := h.other.Load(); other != nil {
		return *other
	}
	if n := h.number.Load(); n > 0 {
		return strconv.FormatUint(n, 10)
	}
	return ""
}

// numberOf returns a version as a number. It returns 0 for one that is no number, or that may have
// more than 64 bits.
func numberOf(version string) uint64 {
	if len(version) > 19 || version[0] == '0' {
		return 0
	}
	n := uint64(0)
	for i := range len(version) {
		digit := version[i] - '0'
		if digit > 9 {
			return 0
		}
		n = n*10 + uint64(digit)
	}
	return n
}
