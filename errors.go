package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

var (
	// ErrAlreadyRun indicates that Run was called a second time. An informer
	// runs once; make a new one to start again.
	ErrAlreadyRun = errors.New("informer has already been run")

	// ErrStopped indicates that the ctx given to Run has ended, so that what
	// was asked for can no longer happen.
	ErrStopped = errors.New("informer has stopped")

	// ErrPermanent indicates that trying again cannot help. A watcher's error
	// that wraps it is not retried. A store's error that wraps it refuses the
	// change: see Options.Store.
	ErrPermanent = errors.New("permanent failure")
)

// SyncError is what the waiting methods return when they gave up. It says what
// they were still waiting for and the last thing that is known to have gone
// wrong. [errors.Is] and [errors.As] see Err as well as Reason, so that
// apierrors.IsForbidden(err), for example, works.
type SyncError struct {
	Informer string   // Options.Name, or "Group"
	Late     []string // what had not happened yet, in words
	// Reason is the failure that stands in the way, if one is known: a *WatchError or
	// *StoreError. Of a Group it wraps all of them, and what a member's Run returned.
	Reason error
	Err    error // ErrStopped, the error of the waiting ctx, or that a member of a Group has failed
}

// Error names the informer, why the waiting ended, what is late, and the reason.
func (e *SyncError) Error() string {
	msg := fmt.Sprintf("informer %s: %v while waiting for %s", e.Informer, e.Err, strings.Join(e.Late, " and "))
	if e.Reason != nil {
		msg += "; failing now: " + e.Reason.Error()
	}
	return msg
}

// Unwrap returns Err and, if there is one, Reason.
func (e *SyncError) Unwrap() []error {
	if e.Reason == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Reason}
}

// WatchError says that a request to the source failed. It is reported when a
// request starts to fail, and again only when the reason changes or it has
// worked in between; the informer goes on trying with growing pauses.
type WatchError struct {
	Op       string // "list" or "watch"
	Resource string // Options.Name
	Err      error
}

// Error names the operation, the resource and the cause.
func (e *WatchError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Resource, e.Err) }

// Unwrap returns Err.
func (e *WatchError) Unwrap() error { return e.Err }

// StoreError says that an operation on the store failed. It is reported when the
// operation starts to fail and, if the store then refuses it with ErrPermanent or
// the informer is stopped before it has succeeded, once more with GaveUp set. In
// between it is retried with growing pauses, and everything behind it waits.
type StoreError struct {
	// Op is what began to fail: "get", "add", "update" or "delete"; of a Scanner "scan",
	// of a Durable "apply", "forget", "resume" or "tombstones"; in Health "list" or
	// "bookmark" too.
	Op       string
	Key      string // as the store has it: "namespace/name" or "name"; of "apply" the first, empty if there is none
	Failures int    // in a row, this one included
	GaveUp   bool   // it will not be tried again: the change is refused
	Err      error
}

// Error names the operation, the key and the cause.
func (e *StoreError) Error() string {
	msg := fmt.Sprintf("store: %s: %v", strings.TrimSpace(e.Op+" "+e.Key), e.Err)
	return msg + givenUp(e.GaveUp, e.Failures)
}

func givenUp(gaveUp bool, failures int) string {
	switch {
	case !gaveUp:
		return ""
	case failures == 1:
		return " (given up)"
	}
	return fmt.Sprintf(" (given up after %d failures)", failures)
}

// Unwrap returns Err.
func (e *StoreError) Unwrap() error { return e.Err }

// EventError says that a watcher returned an error. It is reported when an event
// fails for the first time and, if it is retried and in the end given up, once
// more.
type EventError struct {
	Watcher  string // WatcherOptions.Name
	Key      types.NamespacedName
	Type     EventType // 0 if it was OnSynced that panicked
	Failures int       // for this event, this one included
	GaveUp   bool      // it will not be tried again
	Err      error
}

// Error names the watcher, the event, the key and the cause.
func (e *EventError) Error() string {
	if e.Type == 0 {
		return fmt.Sprintf("watcher %s: OnSynced: %v", e.Watcher, e.Err)
	}
	msg := fmt.Sprintf("watcher %s: %s %s: %v", e.Watcher, e.Type, e.Key, e.Err)
	return msg + givenUp(e.GaveUp, e.Failures)
}

// Unwrap returns Err.
func (e *EventError) Unwrap() error { return e.Err }

// PanicError is what a panic of a watcher becomes if WatcherOptions.RecoverPanics
// is set.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine that panicked, as runtime/debug.Stack returns it
}

// Error returns the value, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ObjectError says that one object could not be used as it came: the source
// delivered something that is no object of the informer's type, or one of the
// user's functions failed on it.
type ObjectError struct {
	Op  string // "list", "watch", "transform", "index", "store" (found in it at the start, maybe as a tombstone)
	Key string // as the store has it; empty if the object has no name
	Err error
}

// Error names the operation, the key if there is one, and the cause.
func (e *ObjectError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s %s: %v", e.Op, e.Key, e.Err)
}

// Unwrap returns Err.
func (e *ObjectError) Unwrap() error { return e.Err }

// LogError logs err with the logger of ctx. It is what Options.ErrorHandler
// defaults to; a handler of one's own may call it to keep the log.
func LogError(ctx context.Context, err error) {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		klog.FromContext(ctx).Error(err, "Informer reports an error", "stack", string(panicked.Stack))
		return
	}
	klog.FromContext(ctx).Error(err, "Informer reports an error")
}
