// Package version compares resourceVersions without allocating memory. It also defines the interface [Follower]
// for watchers that need exact versions.
package version

import (
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Highest is the highest of some versions. Only one goroutine may change it; any may read it. For a version
// that is a number of 64 bits, as nearly all are, it allocates no memory.
type Highest struct {
	number atomic.Uint64          // 0 if there is none
	other  atomic.Pointer[string] // set for a version that is not such a number; takes precedence over number
}

// Raise raises h to version, unless h is as high already. If the two cannot be compared, it sets h to
// version. It ignores "" and "0".
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

// numberOf returns a version as a number. It returns 0 for a version that is not a number, or that may have
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
