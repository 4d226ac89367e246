package source

import "sync/atomic"

// trust records whether the server still has the changes that it has shown.
//
//	trusted ──► suspect    a request has failed
//	suspect ──► trusted    a probe has found nothing wrong
//	any     ──► wentBack   a probe has found an older state
//	any     ──► trusted    a list has replaced everything known
type trust struct {
	state atomic.Int32
	// unnamed is true if the server has refused a request that named a version. The next list
	// must not name one then.
	unnamed  atomic.Bool
	unprobed int // probes of a suspect server that were refused since the last complete list
}

const (
	trusted int32 = iota
	suspect
	wentBack
)

// lose records that a request has failed. The server may come back with an older state.
func (t *trust) lose() { t.state.CompareAndSwap(trusted, suspect) }

// confirm records that a probe has found nothing wrong.
func (t *trust) confirm() { t.state.CompareAndSwap(suspect, trusted) }

// regain records that a list has replaced everything known. It reports whether the server had
// gone back in time.
func (t *trust) regain() (back bool) {
	t.unnamed.Store(false)
	t.unprobed = 0
	return t.state.Swap(trusted) == wentBack
}

func (t *trust) is(state int32) bool { return t.state.Load() == state }
