package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// backoffReset is how long list and watch must work for the back-off to start
// over, as in client-go.
const backoffReset = 2 * time.Minute

// reflectorLevel is added to the verbosity of what the reflector logs. It has a
// line at Info for every watch that the server cuts; what matters of it is
// reported here.
const reflectorLevel = 3

// Source stands between the reflector and the user's ListerWatcher. It sees each
// request and each event, so that no failure stays inside client-go, and knows
// when all of them have returned.
type Source struct {
	cache.ListerWatcherWithContext // the user's
	name                           string
	listOnly                       bool // never stream the first state
	minWatchTimeout                time.Duration
	pageSize                       int64
	backoff                        wait.Backoff
	clock                          stopwatch.Stopwatch
	tell                           Listener
	status                         status
	logger                         klog.Logger // Run's
	lastList, lastContact          stopwatch.Moment
	relayed                        atomic.Pointer[relay] // the last watch
	watching                       atomic.Int32          // watches that are open
	reflector                      atomic.Pointer[cache.Reflector]
	lookEvery                      time.Duration
	resumption                     resumption

	calls       callGroup
	lastWatch   time.Time    // of the reflector's goroutine
	short       atomic.Int32 // watches in a row that ended at once
	streamless  atomic.Bool  // a stream of the first state has stayed silent
	versionless atomic.Bool  // a list without a version was reported
	suspect     atomic.Bool  // a request has failed: the server may come back with a past state
	wentBack    atomic.Bool  // it is one with a past state, not listed yet
}

// Options configures a Source.
type Options struct {
	Name            string
	ListOnly        bool // never stream the first state
	MinWatchTimeout time.Duration
	PageSize        int64
	Backoff         wait.Backoff
}

// Listener is told what happens at a source. Listed, Watched, Look and WatchFailed may
// be nil.
type Listener struct {
	Failed   func(ctx context.Context, f *Failure) // once for each kind of failure
	Unusable func(ctx context.Context, err error)  // an event of a watch that is none
	Resumed  func(version string)                  // it goes on at the version given to Begin
	Listed   func(List)
	Watched  func(Watch)
	Look     func() // while a watch is open

	WatchFailed cache.WatchErrorHandlerWithContext
}

// Failure is a request that has failed: "list" or "watch".
type Failure struct {
	Op  string
	Err error
}

// List says how a LIST request went, and Watch how a watch did.
type (
	List struct {
		Objects int
		Took    time.Duration
		Err     error
	}
	Watch struct {
		Streaming bool
		Events    int
		Took      time.Duration
		Err       error
	}
)

// New returns a Source over lw. It makes no request.
func New(lw cache.ListerWatcher, clock stopwatch.Stopwatch, opts Options, tell Listener) *Source {
	return &Source{
		ListerWatcherWithContext: cache.ToListerWatcherWithContext(lw),
		name:                     opts.Name,
		listOnly:                 opts.ListOnly || watchlist.DoesClientNotSupportWatchListSemantics(lw),
		minWatchTimeout:          opts.MinWatchTimeout,
		pageSize:                 opts.PageSize,
		backoff:                  opts.Backoff,
		tell:                     tell,
		clock:                    clock,
	}
}

// Begin has the source begin at a version, which may be "", instead of listing.
func (s *Source) Begin(version string) { s.resumption.begin(version) }

// Resuming reports whether the list that comes now stands for what the store has already.
func (s *Source) Resuming() bool { return s.resumption.taken() }

// Complete notes that a list has come in whole, and returns whether it is of a server that
// was found to have gone back in time.
func (s *Source) Complete() (wentBack bool) {
	s.lastList.Set(s.clock)
	s.Worked("list")
	s.suspect.Store(false)
	return s.wentBack.Swap(false)
}

// Status is how a source is doing.
type Status struct {
	Watching              bool
	LastList, LastContact time.Time
	Failure               *Failure // the latest of what fails now, or nil
	Failures              int      // of it, in a row
}

// Status does not block.
func (s *Source) Status() Status {
	latest := s.status.latest()
	return Status{
		Watching: s.watching.Load() > 0, LastList: s.lastList.Time(s.clock), LastContact: s.lastContact.Time(s.clock),
		Failure: latest.last, Failures: latest.failures,
	}
}

// Look has look called every so often while a watch is open, and OnWatchFailed has h called
// where client-go calls a WatchErrorHandler. Neither may be called once Run is.
func (s *Source) Look(every time.Duration, look func()) { s.lookEvery, s.tell.Look = every, look }

// OnWatchFailed: see Look.
func (s *Source) OnWatchFailed(h cache.WatchErrorHandlerWithContext) { s.tell.WatchFailed = h }

// UnderWay names the calls of the user's that have not returned.
func (s *Source) UnderWay() []string { return s.calls.underWay() }

// Run lists and watches into store until ctx ends, and returns when no call of
// the user's ListerWatcher is under way any more.
func (s *Source) Run(ctx context.Context, store cache.ReflectorStore) {
	s.logger = klog.FromContext(ctx)
	quiet := s.logger.V(reflectorLevel)
	backoff := s.backoff
	reflector := cache.NewReflectorWithOptions(s, nil, store, cache.ReflectorOptions{
		Name:            s.name,
		TypeDescription: s.name,
		Logger:          &quiet,
		Clock:           stopClock{ctx: ctx},
		Backoff:         &backoff,
		MinWatchTimeout: s.minWatchTimeout,
		ResyncPeriod:    s.lookEvery,
	})
	reflector.ShouldResync = func() bool { s.tell.Look(); return false }
	reflector.WatchListPageSize = s.pageSize
	s.reflector.Store(reflector)

	// Not reflector.RunWithContext: it gives the errors to a handler that
	// cannot be set from outside its package.
	_ = s.backoff.DelayWithReset(clock.RealClock{}, backoffReset).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		before := s.status.failures()
		err := reflector.ListAndWatchWithContext(klog.NewContext(ctx, quiet))
		if err == nil || errors.Is(err, errStreamless) {
			return false, nil
		}
		if !isExpired(err) && s.status.failures() == before {
			s.Failed(ctx, "list", err) // an answer that only the reflector found wrong
		}
		if s.tell.WatchFailed != nil {
			s.tell.WatchFailed(ctx, reflector, err)
		}
		return false, nil
	})
	s.calls.close()
}

// LastVersion returns the version that the reflector has seen last, "" before the
// first.
func (s *Source) LastVersion() string {
	if r := s.reflector.Load(); r != nil {
		return r.LastSyncResourceVersion()
	}
	return ""
}

// IsWatchListSemanticsUnSupported is how the reflector asks whether to list
// rather than stream.
func (s *Source) IsWatchListSemanticsUnSupported() bool { return s.listOnly }

// List and Watch only exist because a reflector is made of the older interface.
func (s *Source) List(opts metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), opts)
}

func (s *Source) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), opts)
}

func (s *Source) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	s.endWatch()
	list, err := s.resume(ctx)
	if list == nil && err == nil {
		if err = s.afresh(ctx, &opts); err == nil {
			list, err = s.list(ctx, opts)
			err = withoutVersion(err, opts.ResourceVersion)
		}
	}
	if err != nil {
		if !isExpired(err) || opts.Continue == "" { // else all pages are asked for again
			s.Failed(ctx, "list", err)
		}
		return nil, err
	}
	return list, nil
}

// list makes one request.
func (s *Source) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if !s.calls.enter("list") {
		return nil, context.Canceled
	}
	defer s.calls.leave("list")
	ctx = klog.NewContext(ctx, s.logger)
	begun := time.Now()
	list, err := s.ListerWatcherWithContext.ListWithContext(ctx, opts)
	if err == nil && object.IsNil(list) {
		err = errors.New("the source returned no list")
	}
	if s.tell.Listed != nil {
		info := List{Took: time.Since(begun), Err: err}
		if err == nil {
			info.Objects = meta.LenList(list)
		}
		s.tell.Listed(info)
	}
	if err != nil {
		return nil, err
	}
	s.lastContact.Set(s.clock)
	if m, err := meta.ListAccessor(list); err == nil && m.GetResourceVersion() == "" && s.versionless.CompareAndSwap(false, true) {
		s.tell.Failed(ctx, &Failure{Op: "list", Err: errors.New(
			"the list has no resourceVersion: the watch starts at some later state, and deletes in between are missed until the next list")})
	}
	return list, nil
}

// endWatch stops the last watch. The reflector does not stop a stream whose first state
// its store has refused, and begins anew.
func (s *Source) endWatch() {
	if r := s.relayed.Swap(nil); r != nil {
		r.Stop()
	}
}

func (s *Source) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.endWatch()
	streaming := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	resuming := s.resumption.version() != ""
	if streaming && (resuming || s.streamless.Load()) {
		return nil, errStreamless // the reflector then lists
	}
	var err error
	if streaming {
		err = s.afresh(ctx, &opts)
	} else {
		s.pace(ctx)
		err = s.checkSuspect(ctx, opts.ResourceVersion)
	}
	if err != nil {
		if !isExpired(err) {
			s.Failed(ctx, "watch", err)
		}
		return nil, err
	}
	if !s.calls.enter("watch") {
		return nil, context.Canceled
	}
	ctx = klog.NewContext(ctx, s.logger)
	begun := time.Now()
	w, err := s.ListerWatcherWithContext.WatchWithContext(ctx, opts)
	if err == nil && object.IsNil(w) {
		err = errors.New("the source returned no watch")
	}
	if streaming {
		err = withoutVersion(err, opts.ResourceVersion)
	}
	if err != nil {
		s.calls.leave("watch")
		s.watchOver(Watch{Streaming: streaming, Err: err}, begun)
		if resuming && isExpired(err) {
			s.resumption.end()
		}
		listFollows := isExpired(err) || streaming && cannotStream(err)
		if !listFollows {
			s.Failed(ctx, "watch", err)
		}
		return nil, err
	}
	s.lastContact.Set(s.clock)
	r := newRelay(s, w, begun, streaming, resuming)
	s.relayed.Store(r)
	go func() {
		defer s.calls.leave("watch")
		r.run(ctx)
	}()
	return r, nil
}

// checkSuspect probes a server that has failed before it is asked for what came after version.
func (s *Source) checkSuspect(ctx context.Context, version string) error {
	if IsAnyVersion(version) || !s.suspect.Load() {
		return nil
	}
	return s.probe(ctx, version)
}

// What a relay tells the reflector, to make it list. They must be none of the
// errors after which a reflector tries the same again, such as 429.
var (
	errStreamless = listInstead("the stream of the first state stayed silent")
	errStreamCut  = listInstead("the stream of the first state ended before it was complete")
)

func listInstead(why string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: why,
	}}
}

// withoutVersion returns err, or what makes the reflector ask once more, for the newest
// state: what it has asked for from a version may be wrong because of the version. That is
// the last event's, and the reflector would stay with it for ever.
func withoutVersion(err error, version string) error {
	if !isMisunderstood(err) || IsAnyVersion(version) {
		return err
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("a list from resourceVersion %q: %v", version, err))
}

// cannotStream reports whether err is how a server says that it does not know
// streams of the first state.
func cannotStream(err error) bool { return isMisunderstood(err) || apierrors.IsMethodNotSupported(err) }

func isMisunderstood(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// Failed notes that a request did not work, and reports it unless the same was
// reported since it last did.
func (s *Source) Failed(ctx context.Context, op string, err error) {
	if ctx.Err() != nil {
		return
	}
	s.suspect.Store(true)
	werr := &Failure{Op: op, Err: err}
	if s.status.fail(werr) {
		s.tell.Failed(ctx, werr)
	}
}

// watchOver tells the observer of a watch that was asked for at that time.
func (s *Source) watchOver(info Watch, asked time.Time) {
	if s.tell.Watched != nil {
		info.Took = time.Since(asked)
		s.tell.Watched(info)
	}
}

// Worked notes that an operation has delivered something good.
func (s *Source) Worked(op string) {
	if failed := s.status.worked(op); failed.failures > 0 {
		s.logger.Info("The source works again", "operation", op, "failures", failed.failures)
	}
}

// watchEnded notes that a watch has ended without an error. One that ended at
// once is nothing; several in a row are a failure that nobody else would tell of.
func (s *Source) watchEnded(ctx context.Context, atOnce bool) {
	if !atOnce {
		s.short.Store(0)
	} else if s.short.Add(1) >= 3 {
		s.Failed(ctx, "watch", errors.New("watches end as soon as they have begun"))
	}
}

// pace holds a watch back that follows another within shortWatch: a reflector
// whose watches bring something and end at once opens the next without a pause.
func (s *Source) pace(ctx context.Context) {
	if wait := shortWatch - time.Since(s.lastWatch); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	s.lastWatch = time.Now()
}

// callGroup counts calls that are under way. Unlike a sync.WaitGroup it may be
// entered at any time: client-go's pager starts further requests on its own
// goroutine after the reflector has returned.
type callGroup struct {
	mu     sync.Mutex     // protects the rest
	ops    map[string]int // calls by operation; none is 0
	closed bool
	idle   chan struct{} // closed when there are none after closed; nil before
}

// enter returns false if no further call may start.
func (g *callGroup) enter(op string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if g.ops == nil {
		g.ops = map[string]int{}
	}
	g.ops[op]++
	return true
}

func (g *callGroup) leave(op string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ops[op]--; g.ops[op] == 0 {
		delete(g.ops, op)
	}
	if g.closed && len(g.ops) == 0 {
		close(g.idle)
	}
}

// underWay returns the operations of which there are calls.
func (g *callGroup) underWay() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.ops))
}

// close lets no further call start and waits for those under way.
func (g *callGroup) close() {
	g.mu.Lock()
	g.closed = true
	g.idle = make(chan struct{})
	if len(g.ops) == 0 {
		close(g.idle)
	}
	g.mu.Unlock()
	<-g.idle
}

// stopClock is a real clock whose After also fires when ctx ends. A reflector
// waits for it, up to a minute, without looking at its ctx.
type stopClock struct {
	clock.RealClock
	ctx context.Context
}

func (c stopClock) After(d time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	ctx, cancel := context.WithTimeout(c.ctx, d)
	context.AfterFunc(ctx, func() {
		fired <- c.Now()
		cancel()
	})
	return fired
}
