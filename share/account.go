package share

import "sync/atomic"

// entryCost is about how many bytes an entry of the table takes.
const entryCost = 80

// account keeps how many bytes sharing has saved at one place, minus the bytes of the entries that it
// has made. A place that loses memory becomes cold: then only one value in 8 is looked at, and one in
// 64 if the place keeps losing. The hash of a value decides whether it is looked at, so that equal
// values are treated alike and the account stays correct. The place becomes warm again when sharing
// would save memory.
type account struct {
	notes   atomic.Uint32
	balance atomic.Int64
	mask    atomic.Uint32 // a value is looked at if these bits of its hash are 0
}

const (
	period      = 64 // an account decides after this many notes
	firstMask   = 1<<3 - 1
	coldestMask = 1<<6 - 1
)

// admits reports whether a value with this hash is looked at.
func (a *account) admits(hash uint64) bool { return uint32(hash>>20)&a.mask.Load() == 0 }

// note adds bytes to the balance. It returns 1 if the place has become cold, -1 if it has become
// warm, and 0 otherwise.
func (a *account) note(bytes int64) (change int64) {
	balance := a.balance.Add(bytes)
	if a.notes.Add(1)%period != 0 {
		return 0
	}
	a.balance.Store(balance / 2) // the past counts less and less
	mask := uint32(0)
	if balance < 0 {
		mask = min(max(firstMask, a.mask.Load()<<1|1), coldestMask)
	}
	switch was := a.mask.Swap(mask); {
	case was == 0 && mask > 0:
		return 1
	case was > 0 && mask == 0:
		return -1
	}
	return 0
}
