package source

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/consistencydetector"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// backoffReset is how long list and watch must work before the back-off starts over. It is
// client-go's value.
const backoffReset = 2 * time.Minute

// reflectorLevel is added to the verbosity of the reflector's log lines. The reflector logs
// a line at Info for every watch that the server cuts. This package reports the lines that
// matter itself.
const reflectorLevel = 3

// Source lists and watches one resource. Its methods may be called from any goroutine; Run
// may be called once.
type Source struct {
	lister    cache.ListerWatcher // the user's
	opts      Options
	callbacks Callbacks
	clock     stopwatch.Stopwatch

	failures              failures
	calls                 callGroup
	lastList, lastContact stopwatch.Moment
	watching              atomic.Int32     // open watches
	opened                stopwatch.Moment // when the last of them was opened
	reflector             atomic.Pointer[cache.Reflector]
}

// Options configures a Source.
type Options struct {
	Name     string
	ListOnly bool // never stream the first state
	PageSize int64
	Early    bool // gives lists to the sink in parts, while they come in
	Backoff  wait.Backoff
	Tweak    func(*metav1.ListOptions) // changes the options of each request; nil changes nothing
}

// Callbacks are called when something happens at a Source. Listed, Watched and WatchFailed
// may be nil. They are called from the goroutines of Run and must not wait for it to return.
type Callbacks struct {
	// Failed is called once for each kind of failure, until the operation has worked again.
	Failed func(ctx context.Context, f *Failure)
	// Unusable is called for an event of a watch that cannot be used and was dropped.
	Unusable func(ctx context.Context, err error)
	// Listed is called after each LIST request, Watched after each watch.
	Listed  func(List)
	Watched func(Watch)
	// WatchFailed is called wherever client-go calls a WatchErrorHandler.
	WatchFailed cache.WatchErrorHandlerWithContext
}

// Sink receives everything that a Source reads. All methods but Resumed are called one at a time.
// A method that blocks holds up the watch or the list, and so the API server.
type Sink interface {
	// CheckType returns an error if obj is an API object of another type than the sink's.
	// Then the whole list that contains obj fails. For an empty list, obj is an object without
	// a name, of the type of the list's items.
	CheckType(obj any) error
	// Upsert receives an object that the watch added or updated, and Delete the last state
	// of a deleted one. version is the resourceVersion that the sink has reached with it. It
	// is "" if obj has none, and while a watch sends its first objects, which come in no order
	// of versions.
	Upsert(obj any, version string)
	Delete(obj any, version string)
	// Bookmark says that there are no changes up to version except those received.
	Bookmark(version string)
	// Replace receives a complete list. wentBack says that the server has lost changes that
	// it has shown before: versions may mean something else than they did.
	Replace(list []any, version string, wentBack bool)
	// Begin announces a list that comes in parts. Each later call of Upsert and Delete, with
	// version "", is about an object of this list, until End, which says that the list is
	// complete, or until the next Begin or Replace: then the list was given up. doubtful says
	// that the server has gone back in time, as wentBack of Replace.
	Begin(doubtful bool)
	End(version string)
	// Resumed says that the watch goes on from the version given to Run. Nothing was received
	// before. It is called from the watch's goroutine.
	Resumed(version string)
}

// Failure is a request that has failed. Op is "list" or "watch".
type Failure struct {
	Op  string
	Err error
}

// List describes one LIST request.
type List struct {
	Objects int
	Took    time.Duration
	Err     error
}

// Watch describes one watch.
type Watch struct {
	Streaming bool
	Events    int
	Took      time.Duration
	Err       error
}

// New returns a Source over lister. It makes no request.
func New(lister cache.ListerWatcher, clock stopwatch.Stopwatch, opts Options, callbacks Callbacks) *Source {
	// This detector of client-go's compares what the reflector has got with another list.
	opts.Early = opts.Early && !consistencydetector.IsDataConsistencyDetectionForWatchListEnabled()
	return &Source{
		lister:    lister,
		opts:      opts,
		callbacks: callbacks,
		clock:     clock,
	}
}

// Run reads the resource into sink until ctx ends. If version is not "", it resumes with a
// watch from that version, unless the server has forgotten or lost it. Otherwise it lists
// first. Run returns when no call of the user's ListerWatcher is under way.
func (s *Source) Run(ctx context.Context, sink Sink, version string) {
	s.read(ctx, newRequests(ctx, s, s.lister, sink, version))
	s.calls.close()
}

// Part is a part of a resource, for RunParts.
type Part struct {
	Lister  cache.ListerWatcher
	Changed <-chan struct{} // closed when another part is to be read
}

// RunParts reads one part of the resource after another into sink, until ctx ends: each, which next
// returns, until it has changed. Each begins with a list, which is no older than what was read
// before. RunParts does not use the lister of New.
func (s *Source) RunParts(ctx context.Context, sink Sink, next func() Part) {
	reached := ""
	for {
		part := next()
		reading, end := context.WithCancel(ctx)
		var ending sync.WaitGroup
		ending.Go(func() {
			select {
			case <-part.Changed:
				end()
			case <-reading.Done():
			}
		})
		r := newRequests(reading, s, part.Lister, sink, "")
		r.reached, r.parts.behind = reached, reached != ""
		s.read(reading, r)
		s.calls.close()
		reached = r.reached
		end()
		ending.Wait()
		if ctx.Err() != nil {
			return
		}
		s.calls.open()
	}
}

// read has a reflector read into the sink of r until ctx ends.
func (s *Source) read(ctx context.Context, r *requests) {
	quiet := r.logger.V(reflectorLevel)
	backoff := s.opts.Backoff
	reflector := cache.NewReflectorWithOptions(r, nil, newFeed(ctx, r), cache.ReflectorOptions{
		Name:            s.opts.Name,
		TypeDescription: s.opts.Name,
		Logger:          &quiet,
		Clock:           stopClock{ctx: ctx},
		Backoff:         &backoff,
	})
	reflector.WatchListPageSize = s.opts.PageSize
	s.reflector.Store(reflector)

	// Not reflector.RunWithContext: it gives errors to a handler that cannot be set from
	// outside its package.
	_ = s.opts.Backoff.DelayWithReset(clock.RealClock{}, backoffReset).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		before := s.failures.total()
		err := reflector.ListAndWatchWithContext(klog.NewContext(ctx, quiet))
		if err == nil || errors.Is(err, errStreamless) {
			return false, nil
		}
		if !isExpired(err) && s.failures.total() == before {
			r.failed(ctx, "list", err) // only the reflector found the answer wrong
		}
		if s.callbacks.WatchFailed != nil {
			s.callbacks.WatchFailed(ctx, reflector, err)
		}
		return false, nil
	})
}

// Status is the state of a Source.
type Status struct {
	Watching              bool
	Opened                time.Time // when the last watch was opened
	LastList, LastContact time.Time
	Failure               *Failure // the latest that has not worked since; nil if there is none
	Failures              int      // of Failure's operation, in a row
}

// Status returns the state of s. It does not block.
func (s *Source) Status() Status {
	latest := s.failures.latest()
	return Status{
		Watching: s.watching.Load() > 0, Opened: s.opened.Time(s.clock), LastList: s.lastList.Time(s.clock), LastContact: s.lastContact.Time(s.clock),
		Failure: latest.last, Failures: latest.failures,
	}
}

// UnderWay returns the names of the user's calls, "list" and "watch", that have not returned.
func (s *Source) UnderWay() []string { return s.calls.underWay() }

// LastVersion returns the last resourceVersion that the reflector has seen, and "" before
// the first.
func (s *Source) LastVersion() string {
	if r := s.reflector.Load(); r != nil {
		return r.LastSyncResourceVersion()
	}
	return ""
}

// stopClock is a real clock whose After also fires when ctx ends. The reflector waits up to
// a minute for After without looking at its ctx.
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
