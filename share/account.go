package share

import "sync/atomic"

// entryCost is about how many bytes an entry in the table takes.
const entryCost = 80

// account keeps how many bytes sharing has saved at one place, less those of the entries that it
// has made. A place at which it loses becomes cold: then only one value in 16 is looked at. These
// are chosen by their hash, so that equal values are chosen together and the account stays true.
// It becomes warm again when sharing would save memory.
type account struct {
	notes   atomic.Uint32
	balance atomic.Int64
	cold    atomic.Bool
}

// period is after how many notes an account decides whether its place is cold.
const period = 512

// admits reports whether a value with a hash is to be looked at.
func (a *account) admits(hash uint64) bool { return hash>>20&15 == 0 || !a.cold.Load() }

// note adds bytes to the balance. It returns 1 if the place has become cold, -1 if it has become
// warm, and 0 otherwise.
func (a *account) note(bytes int64) (change int64) {
	balance := a.balance.Add(bytes)
	if a.notes.Add(1)%period != 0 {
		return 0
	}
	a.balance.Store(balance / 2) // the past counts less and less
	cold := balance < 0
	switch was := a.cold.Swap(cold); {
	case cold && !was:
		return 1
	case !cold && was:
		return -1
	}
	return 0
}
