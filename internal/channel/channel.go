// Package channel tests channels that are closed as a signal.
package channel

// Closed reports whether c is closed. It does not block. Nothing may ever be sent on c,
// because Closed would receive it.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
