package valkey

import (
	"errors"
	"fmt"
	"strings"

	"github.com/valkey-io/valkey-go"
)

var (
	// ErrFenced indicates that another Store was opened later, with the same token or a higher one,
	// or that a Store with a higher token writes. The call has had no effect, and all later calls of
	// this Store return the same error. End the process. If Open returns ErrFenced to the leader of
	// the election, tokens have begun again from a lower number, and the error explains what to do.
	ErrFenced = errors.New("another writer has taken over")

	// ErrLost indicates that the server does not have what it has confirmed: it was emptied,
	// it has evicted keys, or a server that was behind has taken over. The call has had no effect,
	// and all later calls of this Store return the same error. The next Open continues with an older
	// state if it is complete, and with an empty store otherwise.
	ErrLost = errors.New("the server has lost a part of the store")
)

// MissingError reports that the server had only some parts of a store, and that Open has begun an
// empty store in its place. It is passed to Options.ErrorHandler, never returned.
type MissingError struct {
	Store string // the prefix of its keys
	Part  string // "objects", "keys", "tombstones", "log", or "changes" if a write has stopped in the middle
}

// Error returns a message with the store and the part.
func (e *MissingError) Error() string {
	return fmt.Sprintf("valkey: %s: the server does not have all %s, and an empty store takes its place", e.Store, e.Part)
}

// These are the words with which the errors of scripts begin.
const (
	fencedCode = "FENCED "
	lostCode   = "LOST "
	otherCode  = "OTHER "
)

// explain returns an error that wraps ErrFenced or ErrLost if err is such an error of a script, and
// err otherwise.
func explain(err error) error {
	reply, ok := valkey.IsValkeyErr(err)
	if !ok {
		return err
	}
	text := reply.Error()
	if of, fenced := strings.CutPrefix(text, fencedCode); fenced {
		return fmt.Errorf("%w: %s", ErrFenced, of)
	}
	if of, lost := strings.CutPrefix(text, lostCode); lost {
		return fmt.Errorf("%w: %s", ErrLost, of)
	}
	return err
}
