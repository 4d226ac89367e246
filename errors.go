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
	// ErrAlreadyRun indicates that Run was called a second time. An informer runs only
	// once: to start again, make a new one.
	ErrAlreadyRun = errors.New("informer has already been run")

	// ErrStopped indicates that the ctx given to Run has ended, so that the request can no
	// longer be fulfilled.
	ErrStopped = errors.New("informer has stopped")

	// ErrPermanent indicates that another attempt cannot help. A watcher's error that wraps
	// it is not retried. A store's error that wraps it refuses the change: see Options.Store.
	ErrPermanent = errors.New("permanent failure")

	// ErrNotEngaged indicates that an informer does not read the cluster, see [Clusters]. It wraps [ErrPermanent].
	ErrNotEngaged = fmt.Errorf("the cluster is not engaged: %w", ErrPermanent)

	errNoCluster   = errors.New("a namespace and a name may be those of an object in each cluster: see In")
	errNoSnapshots = errors.New("only the informer's own store has snapshots, and Options.Store or Options.Durable is set")

	errLoose = errors.New("the store has objects of the cluster, but nothing has engaged it yet")

	// ErrLeaseLost indicates that another replica may be the leader from now on, see
	// enqueue.Options.Lost. If the ctx of a Run ends with a cause that wraps it (see
	// [context.WithCancelCause]), Run does not drain, whatever DrainTimeout is.
	ErrLeaseLost = errors.New("the lease is lost")
)

// errOwnCall is the error of a wait that its caller itself holds up.
var errOwnCall = errors.New("it was called in the callback of a watcher that it waits for")

// SyncError is the error of the methods that wait, such as WaitForSync, when they give up. It
// names what is still missing, and the last failure that is known. [errors.Is] and [errors.As]
// find Err as well as Reason, so that apierrors.IsForbidden(err), for example, works.
type SyncError struct {
	Informer string   // Options.Name, or "Group"
	Late     []string // the things that were still missing, in words
	// Reason is the failure that is in the way, if one is known: a *WatchError or
	// *StoreError. For a Group it wraps all of them, and the error that a member's Run
	// returned.
	Reason error
	// Err is why the waiting ended: ErrStopped, the error of the ctx, or an error
	// because a member of a Group has failed.
	Err error
}

// Error names the informer, Err, the missing things, and Reason.
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

// values returns the log line of a wait that would return e now: who waits, as key and
// value, what is late, and the reason. It returns nil if nothing is late.
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

// WatchError is a request to the source that failed. It is reported when a request starts to
// fail, and again only if the reason changes or a request has worked in between. The informer
// keeps trying, with growing pauses.
type WatchError struct {
	Op        string // "list" or "watch"
	Resource  string // Options.Name
	Namespace string // "" unless the informer was made by NewInNamespaces
	Cluster   string // "" unless the informer was made by NewOverClusters
	Err       error
}

// Error names the operation, the resource, the namespace or the cluster, and the cause.
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

// StoreError is an operation on the store that failed. It is reported when the operation
// starts to fail. It is reported once more, with GaveUp set, if the store then refuses the
// operation with ErrPermanent, or if the informer is stopped before the operation has
// succeeded. In between, the operation is retried with growing pauses, and every change behind
// it waits. GaveUp is also set if Run ends because the store does not find an object.
type StoreError struct {
	// Op is the operation that failed: "get", "add", "update" or "delete", and "put" or "remove" of a [Sink]. Of a Durable it may be
	// "scan", "apply", "forget", "resume" or "tombstones". In Health it may also be "list" or
	// "bookmark".
	Op string
	// Key is the key in the store: "namespace/name" or "name", with "cluster|" before it if the informer was made by
	// NewOverClusters. For "apply" it is the key of the first change. It is empty if the operation has no key.
	Key      string
	Failures int  // failures in a row, this one included
	GaveUp   bool // the operation will not be tried again
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

// EventError is an error that a watcher returned. It is reported when an event fails for the
// first time. If the event is retried and given up in the end, it is reported once more.
type EventError struct {
	Watcher  string // WatcherOptions.Name
	Cluster  string // "" unless the informer was made by NewOverClusters
	Key      types.NamespacedName
	Type     EventType // 0 if OnSynced panicked
	Failures int       // failures of this event, this one included
	GaveUp   bool      // the event will not be tried again
	Err      error
}

// Error names the watcher, the event, the key and the cause.
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

// PanicError stands for a panic of a watcher that was recovered, see
// WatcherOptions.RecoverPanics.
type PanicError struct {
	Value any    // the value given to panic
	Stack []byte // the stack of the goroutine that panicked, as runtime/debug.Stack returns it
}

// Error returns Value as text, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ObjectError is an object that could not be used as it came. Either the source delivered
// something that is not an object of the informer's type or cannot be decoded, or a function of the
// user, such as Options.Transform, failed for it. An object that keeps failing is reported once. Of many, the
// first three are reported, and then those that are the 10th, the 100th, the 1,000th and so on.
type ObjectError struct {
	// Op is "list", "watch", "decode", "transform", "index" or "store". With "store", the object was
	// in the store at the start, perhaps as a tombstone.
	Op  string
	Key string // the key in the store; empty if the object has no name
	// Failing is how many objects fail for Op now, this one included. If Op is "list", "watch" or
	// "store", it is how often this has happened so far.
	Failing int
	Err     error
}

// Error names the operation, the key if there is one, the cause, and Failing if it is more than 1.
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

// Report gives err to the ErrorHandler of the [Group] that runs the caller: ctx comes from the Run of
// a member. Without such a handler, Report logs err with the logger of ctx, with the stack of a panic
// if there is one. It is the default of Options.ErrorHandler, and members of your own may report their
// errors with it. A handler of your own may call it to keep the log: the handler is not called again.
func Report(ctx context.Context, err error) { membership.Report(ctx, err, logError) }

func logError(ctx context.Context, err error) {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		klog.FromContext(ctx).Error(err, "Informer reports an error", "stack", string(panicked.Stack))
		return
	}
	klog.FromContext(ctx).Error(err, "Informer reports an error")
}

// reports decides which ObjectErrors are reported. All parts of an informer share it.
type reports struct {
	report func(context.Context, error)
	some   atomic.Bool // byOp has an object; if not, one that works costs nothing

	mu   sync.Mutex                    // protects the rest; not held while report is called
	byOp map[string]map[string]failure // the objects that fail, by Op ("decode", "transform" or "index") and key
	odd  map[string]int                // how often something unusable has come, by Op and error
}

type failure struct {
	told bool // it was reported
	list int  // the source's last list when it last failed; 0 for "index"
}

func newReports(report func(context.Context, error)) *reports {
	return &reports{report: report, byOp: map[string]map[string]failure{"decode": {}, "transform": {}, "index": {}}, odd: map[string]int{}}
}

// tells reports whether the object with that number is reported: one of the first three, or the
// 10th, the 100th and so on.
func tells(n int) bool {
	return n <= 3 || strings.TrimRight(strconv.Itoa(n), "0") == "1"
}

// failed notes that an object could not be decoded, or that a function of the user has failed for it. list is that of failure.
func (r *reports) failed(ctx context.Context, op, key string, list int, errs ...error) {
	r.mu.Lock()
	was, before := r.byOp[op][key]
	n := len(r.byOp[op]) + 1
	tell := !before && tells(n)
	r.byOp[op][key] = failure{was.told || tell, list}
	r.some.Store(true)
	r.mu.Unlock()
	for _, err := range errs {
		if tell {
			r.report(ctx, &ObjectError{Op: op, Key: key, Failing: n, Err: err})
		}
	}
}

// ended notes that an object works, or that it was deleted.
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
	} else if works && was.told {
		klog.FromContext(ctx).Info("An object works again", "operation", op, "key", key, "failing", left)
	}
}

// undecodable returns how many objects cannot be decoded now, and the first of their keys, sorted.
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

// listed forgets the objects that were not decoded or transformed and that a list lacks, although it covers
// them: no delete follows if the store never had them. After the end of ctx, the list may not be whole.
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

// unusable notes something that is no object of the informer. If it has a key, the object of that
// key may be in order.
func (r *reports) unusable(ctx context.Context, err *ObjectError) {
	r.mu.Lock()
	what := err.Op + ": " + err.Err.Error()
	if r.odd[what] == 0 && len(r.odd) >= 100 {
		what = err.Op // a server can make up any number of errors
	}
	r.odd[what]++
	err.Failing = r.odd[what]
	r.mu.Unlock()
	if tells(err.Failing) {
		r.report(ctx, err)
	}
}
