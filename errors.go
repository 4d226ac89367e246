package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/membership"
	"github.com/customcacheinformer/informer/internal/object"
)

var (
	// ErrAlreadyRun indicates that Run was called before. An informer, a group or another member runs
	// only once: to start again, make a new one.
	ErrAlreadyRun = errors.New("informer has already been run")

	// ErrStopped indicates that the call can no longer do its work, because Run's ctx is done or the
	// registration of a watcher was removed.
	ErrStopped = errors.New("informer has stopped")

	// ErrPermanent indicates that another attempt cannot help. If a watcher returns an error that wraps
	// ErrPermanent, the event is not retried. A store or a [Sink] refuses a change with such an error,
	// see Options.Store. See enqueue.NewController for what it means for a reconcile function.
	ErrPermanent = errors.New("permanent failure")

	// ErrNotEngaged indicates that an informer of [NewOverClusters] does not read the cluster, see
	// [Clusters.Engage]. It wraps [ErrPermanent].
	ErrNotEngaged = fmt.Errorf("the cluster is not engaged: %w", ErrPermanent)

	errNoCluster   = errors.New("a namespace and a name may be those of an object in each cluster: see In")
	errNoSnapshots = errors.New("only the informer's own store has snapshots, and Options.Store or Options.Durable is set")

	errLoose = errors.New("the store has objects of the cluster, but nothing has engaged it yet")

	// ErrLeaseLost indicates that this replica has lost its lease, in a leader election or in a set of
	// package shards, so that another replica may do its work now. See enqueue.Options.Lost. If the ctx of
	// a Run ends with a cause that wraps ErrLeaseLost (see [context.WithCancelCause]), Run does not wait
	// for DrainTimeout.
	ErrLeaseLost = errors.New("the lease is lost")
)

// errOwnCall is the error of a wait in a watcher's callback that waits for this same watcher.
var errOwnCall = errors.New("it was called in the callback of a watcher that it waits for")

// SyncError is the error that WaitForSync and other waiting methods return when they give up. It names
// what is still missing, and the last known failure. [errors.Is] and [errors.As] find both Err and
// Reason, so that apierrors.IsForbidden(err), for example, works.
type SyncError struct {
	Informer string   // the Name of the informer or of another member, or "Group"
	Late     []string // the things that were still missing, in words
	// Reason is the failure that prevents progress, or nil if none is known. For an informer it is a
	// *WatchError or a *StoreError. For a Group it wraps the failures of all late members, and the errors
	// that the Run of members returned. For other members it may be any error.
	Reason error
	// Err shows why the waiting ended: ErrStopped, the error of the ctx, or another error if a member
	// of a Group has failed or a watcher's callback waits for itself.
	Err error
}

// Error returns a text with Informer, Err, Late and, if there is one, Reason.
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

// values returns the keys and values of the log line for a wait that would return e now: who waits,
// what is late, and the reason. It returns nil if nothing is late.
func (e *SyncError) values(key string, who any) []any {
	if len(e.Late) == 0 {
		return nil
	}
	values := []any{key, who, "late", e.Late}
	if e.Reason != nil {
		values = append(values, "reason", e.Reason)
	}
	return values
}

// WatchError reports a list or watch that failed. Each kind of failure, such as a 403, is reported once. It
// is reported again only if the list or the watch has worked in between. The informer keeps trying, with
// growing pauses.
//
// A WatchError also reports a list that the informer has taken although it has no version, or although it
// shows that the server has gone back in time.
type WatchError struct {
	Op        string // "list" or "watch"
	Resource  string // Options.Name
	Namespace string // "" unless the informer was made by NewInNamespaces
	Cluster   string // "" unless the informer was made by NewOverClusters
	Err       error
}

// Error returns a text with the operation, the resource, the namespace or the cluster, and Err.
func (e *WatchError) Error() string {
	where := ""
	switch {
	case e.Namespace != "":
		where = " in namespace " + e.Namespace
	case e.Cluster != "":
		where = " in cluster " + e.Cluster
	}
	return fmt.Sprintf("%s %s%s: %v", e.Op, e.Resource, where, e.Err)
}

// Unwrap returns Err.
func (e *WatchError) Unwrap() error { return e.Err }

// StoreError reports an operation on the store that failed. It is reported when the operation begins to
// fail. The informer then retries the operation with growing pauses, and later changes wait. It gives up
// if the store refuses the operation with ErrPermanent, or if the informer stops, and then reports the
// last error with GaveUp set. If the store refuses the first attempt, there is only this report. GaveUp
// is also set for an operation that is not retried, such as the scan of [CustomCacheInformer.All], and if
// Run ends because the store does not find an object. Get and WaitFor return a StoreError and do not
// report it.
type StoreError struct {
	// Op is the operation that failed: "get", "add", "update" or "delete", or for a [Sink] "put" or "remove". For a Durable it may
	// also be "scan", "apply", "forget", "resume" or "tombstones". In Health it may also be "list" or "bookmark",
	// and "apply" for the informer's own store.
	Op string
	// Key is the key in the store: "namespace/name" or "name", with "cluster|" before it for an informer of
	// [NewOverClusters]. For "apply" it is the key of the first change. It is "" if the operation has no key.
	Key      string
	Failures int  // failures in a row, this one included
	GaveUp   bool // the operation will not be tried again
	Err      error
}

// Error returns a text with the operation, the key, Err, and whether the operation was given up.
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

// EventError reports an error that a watcher returned, or a panic of a watcher, see
// WatcherOptions.RecoverPanics. It is reported when an event fails for the first time, and once more if
// the event is retried and finally given up.
type EventError struct {
	Watcher  string // WatcherOptions.Name
	Cluster  string // "" unless the informer was made by NewOverClusters
	Key      types.NamespacedName
	Type     EventType // 0 if OnSynced panicked
	Failures int       // failures of this event, this one included
	GaveUp   bool      // the event will not be tried again
	Err      error
}

// Error returns a text with the watcher, the type of the event, the key, Err, and whether the event was
// given up. If Type is 0, the text has only the watcher and Err.
func (e *EventError) Error() string {
	if e.Type == 0 {
		return fmt.Sprintf("watcher %s: OnSynced: %v", e.Watcher, e.Err)
	}
	key := e.Key.String()
	if e.Cluster != "" {
		key = e.Cluster + object.ClusterMark + key
	}
	msg := fmt.Sprintf("watcher %s: %s %s: %v", e.Watcher, e.Type, key, e.Err)
	return msg + givenUp(e.GaveUp, e.Failures)
}

// Unwrap returns Err.
func (e *EventError) Unwrap() error { return e.Err }

// PanicError is the error for a recovered panic of a watcher, see WatcherOptions.RecoverPanics, or of the
// reconcile function of a controller of package enqueue.
type PanicError struct {
	Value any    // the value given to panic
	Stack []byte // the stack of the goroutine that panicked, as runtime/debug.Stack returns it
}

// Error returns a text with Value, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error, and otherwise nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ObjectError reports an object that could not be used. Either the object cannot be decoded, is not of the
// informer's type or namespace, or has no name. Or a function of the program, such as Options.Transform, has
// failed for it. If Op is "decode", "transform" or "index", an object that keeps failing is reported once.
// If many objects fail, only the first three, the 10th, the 100th, the 1,000th and so on are reported. If Op
// is "list", "watch" or "store", the same rule applies to the repetitions of one error.
type ObjectError struct {
	// Op is "list", "watch", "decode", "transform", "index" or "store". "store" means that the object
	// was in the store when Run was called, perhaps as a tombstone.
	Op  string
	Key string // the key in the store, or "" if it is not known; always "" if Op is "store"
	// Failing is the number of objects for which Op fails now, including this one. If Op is "list",
	// "watch" or "store", it is how often the same error has occurred so far.
	Failing int
	Err     error
}

// Error returns a text with the operation, the key if there is one, Err, and Failing if it is more than
// 1.
func (e *ObjectError) Error() string {
	count := ""
	if e.Failing > 1 && (e.Op == "decode" || e.Op == "transform" || e.Op == "index") {
		count = fmt.Sprintf(" (%d objects fail)", e.Failing)
	} else if e.Failing > 1 {
		count = fmt.Sprintf(" (%d times so far)", e.Failing)
	}
	return fmt.Sprintf("%s: %v%s", strings.TrimSpace(e.Op+" "+e.Key), e.Err, count)
}

// Unwrap returns Err.
func (e *ObjectError) Unwrap() error { return e.Err }

// Report gives err to the ErrorHandler of a [Group], if ctx is the ctx of a member's Run in that group or
// is derived from it. Otherwise, or if the group has no ErrorHandler, Report logs err with the logger of
// ctx, and with the stack if err wraps a [*PanicError]. Report is the default of Options.ErrorHandler. Your
// own members can report errors with it. The ErrorHandler of a group can call Report to log the error as
// well, and is then not called again.
func Report(ctx context.Context, err error) { membership.Report(ctx, err, logError) }

func logError(ctx context.Context, err error) {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		klog.FromContext(ctx).Error(err, "Informer reports an error", "stack", string(panicked.Stack))
		return
	}
	klog.FromContext(ctx).Error(err, "Informer reports an error")
}

// reports decides which ObjectErrors are reported. All parts of an informer share one.
type reports struct {
	report func(context.Context, error)
	some   atomic.Bool // byOp has an object; if not, one that works costs nothing

	mu   sync.Mutex                    // protects the rest; not held while report is called
	byOp map[string]map[string]failure // the objects that fail, by Op ("decode", "transform" or "index") and key
	odd  map[string]int                // how often something unusable arrived, by Op and error
}

type failure struct {
	reported bool // it was reported
	list     int  // the source's last list when it last failed; 0 for "index"
}

func newReports(report func(context.Context, error)) *reports {
	return &reports{report: report, byOp: map[string]map[string]failure{"decode": {}, "transform": {}, "index": {}}, odd: map[string]int{}}
}

// isReported reports whether the n-th failing object is reported: one of the first three, or the 10th, the
// 100th and so on.
func isReported(n int) bool {
	return n <= 3 || strings.TrimRight(strconv.Itoa(n), "0") == "1"
}

// failed notes that an object could not be decoded, or that a function of the program has failed for it, and reports errs if
// necessary. list has the meaning of failure.list.
func (r *reports) failed(ctx context.Context, op, key string, list int, errs ...error) {
	r.mu.Lock()
	was, before := r.byOp[op][key]
	n := len(r.byOp[op]) + 1
	report := !before && isReported(n)
	r.byOp[op][key] = failure{was.reported || report, list}
	r.some.Store(true)
	r.mu.Unlock()
	for _, err := range errs {
		if report {
			r.report(ctx, &ObjectError{Op: op, Key: key, Failing: n, Err: err})
		}
	}
}

// ended notes that op no longer fails for an object: it works, or if works is false, the object is
// gone.
func (r *reports) ended(ctx context.Context, op, key string, works bool) {
	if !r.some.Load() {
		return
	}
	r.mu.Lock()
	was, failed := r.byOp[op][key]
	delete(r.byOp[op], key)
	left := len(r.byOp[op])
	if failed && left == 0 {
		r.byOp[op] = map[string]failure{} // a map does not shrink
		r.some.Store(len(r.byOp["decode"])+len(r.byOp["transform"])+len(r.byOp["index"]) > 0)
	}
	r.mu.Unlock()
	if failed && left == 0 {
		klog.FromContext(ctx).Info("No object fails any more", "operation", op, "key", key)
	} else if works && was.reported {
		klog.FromContext(ctx).Info("An object works again", "operation", op, "key", key, "failing", left)
	}
}

// undecodable returns how many objects cannot be decoded now, and up to most of their keys, the lowest,
// sorted.
func (r *reports) undecodable(most int) (n int, keys []string) {
	if !r.some.Load() {
		return 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.byOp["decode"] {
		if len(keys) == most && key > keys[most-1] {
			continue // the usual case, if many fail
		}
		at, _ := slices.BinarySearch(keys, key)
		keys = slices.Insert(keys[:min(len(keys), most-1)], at, key)
	}
	return len(r.byOp["decode"]), keys
}

// listed forgets failures of "decode" and "transform" for objects that the list covers but does not have:
// if the store never had such an object, no delete follows. After ctx is done, listed does nothing,
// because the list may be incomplete.
func (r *reports) listed(ctx context.Context, covers func(key string) bool, list int) {
	for _, op := range []string{"decode", "transform"} {
		r.mu.Lock()
		failing := maps.Clone(r.byOp[op])
		r.mu.Unlock()
		for key, f := range failing {
			if ctx.Err() == nil && f.list < list && covers(key) {
				r.ended(ctx, op, key, false)
			}
		}
	}
}

// unusable counts and reports err, which is about something that is not an object of the informer. Even
// if it has a key, the object in the store under that key may be usable. It counts by operation and text, and
// after 100 different texts only by operation.
func (r *reports) unusable(ctx context.Context, err *ObjectError) {
	r.mu.Lock()
	what := err.Op + ": " + err.Err.Error()
	if r.odd[what] == 0 && len(r.odd) >= 100 {
		what = err.Op // a server can make up any number of errors
	}
	r.odd[what]++
	err.Failing = r.odd[what]
	r.mu.Unlock()
	if isReported(err.Failing) {
		r.report(ctx, err)
	}
}
