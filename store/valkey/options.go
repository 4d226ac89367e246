package valkey

import (
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/store"
)

// Options configures a [Store]. Identity must be set. The other fields may be zero.
type Options struct {
	// Identity describes the objects of the store. A store with another Identity, or with objects of
	// another type, has other keys on the server. If its Cluster is empty, Open returns an error,
	// because two clusters would use the same store.
	Identity store.Identity

	// Token decides which writer is newer. A Store takes over from Stores with the same token or a
	// lower one. Open returns an error if the server knows a higher token. Take the token from the
	// Lease that makes this process the leader, see [LeaseToken]. It must be from 0 to 2^53-1.
	// Defaults to 0: if all Stores have 0, the one that was opened last writes.
	Token int64

	// Writer is the name of this process in errors and in [Status]. Defaults to the name of the
	// host.
	Writer string

	// Log is the approximate number of changes that the server keeps for readers that lose
	// their connection. A reader that has missed more changes lists again. Each change takes
	// as much memory as its object. Log must be from 0 to 1e9. Defaults to 100,000.
	Log int

	// ErrorHandler is called by Open, in the goroutine of that call, with a *MissingError if the
	// server has only some parts of the store. It must not call the store. Defaults to logging with
	// klog.
	ErrorHandler func(error)
}

const (
	defaultLog = 100_000
	maxLog     = 1_000_000_000
	maxToken   = 1<<53 - 1 // the largest number that a script can distinguish from its neighbours
)

func (o Options) withDefaults() Options {
	if o.Log == 0 {
		o.Log = defaultLog
	}
	if o.Writer == "" {
		o.Writer, _ = os.Hostname() // an unnamed writer is not a reason not to write
	}
	if o.ErrorHandler == nil {
		o.ErrorHandler = func(err error) { klog.Background().Error(err, "Valkey store") }
	}
	return o
}

func (o Options) check() error {
	switch {
	case o.Token < 0 || o.Token > maxToken:
		return fmt.Errorf("Options.Token is %d, want 0 to %d", o.Token, int64(maxToken))
	case o.Log < 0 || o.Log > maxLog:
		return fmt.Errorf("Options.Log is %d, want 0 to %d", o.Log, maxLog)
	case !utf8.ValidString(o.Writer):
		return errors.New("Options.Writer is not UTF-8")
	}
	return nil
}
