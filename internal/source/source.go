package source

import (
	"cmp"
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

	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

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
	waiting               waiting
	versionless           atomic.Bool // the last list had no version, which was reported
	calls                 callGroup
	lastList, lastContact stopwatch.Moment
	nextTry               stopwatch.Moment // the end of the last pause between attempts
	watching              atomic.Int32     // open watches
	opened                stopwatch.Moment // when the last of them was opened
	reflector             atomic.Pointer[cache.Reflector]
	reading               atomic.Pointer[requests] // nil before Run
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
		waiting:   waiting{answer: stopwatch.NewCall(clock), end: stopwatch.NewCall(clock)},
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
	reached, answers := "", (*answers)(nil)
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
		r.reached, r.parts.behind, r.answers = reached, reached != "", cmp.Or(answers, r.answers)
		s.read(reading, r)
		s.calls.close()
		reached, answers = r.reached, r.answers
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
	reflector := cache.NewReflectorWithOptions(r, nil, newFeed(ctx, r), cache.ReflectorOptions{
		Name:            s.opts.Name,
		TypeDescription: s.opts.Name,
		Logger:          &quiet,
		Clock:           stopClock{ctx: ctx, pauses: r.pauses},
	})
	reflector.WatchListPageSize = s.opts.PageSize
	s.reflector.Store(reflector)
	s.reading.Store(r)

	// Not reflector.RunWithContext: it gives errors to a handler that cannot be set from
	// outside its package.
	_ = wait.DelayFunc(r.pauses.step).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
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
	Failure               *Failure      // of the operation that failed last and has not worked since, or a warning; may be nil
	Failures              int           // of that operation, in a row; 0 if both work
	Since                 time.Time     // when the first of these failures came; zero if both work
	NextTry               time.Time     // when the pause after the last failure ends; zero if there is none
	Waiting               time.Duration // how long the request that is under way has had no answer; 0 if that is not too long
}

// Status returns the state of s. It does not block.
func (s *Source) Status() Status {
	latest := s.failures.latest()
	failure := cmp.Or(s.waiting.reason(latest.last), latest.last)
	if failure == nil && s.versionless.Load() {
		failure = &Failure{Op: "list", Err: errVersionless}
	}
	status := Status{
		Watching: s.watching.Load() > 0, Opened: s.opened.Time(s.clock), LastList: s.lastList.Time(s.clock), LastContact: s.lastContact.Time(s.clock),
		Failure: failure, Failures: latest.failures, Waiting: s.waiting.tooLong(),
	}
	if latest.failures > 0 {
		status.Since = time.Now().Add(-time.Since(latest.since)).Round(0) // the system's clock may have been set
		if next := s.nextTry.Time(s.clock); next.After(time.Now()) {
			status.NextTry = next
		}
	}
	return status
}

// Newest asks the server for its present version of the resource. Unlike a probe, it changes nothing,
// and may be called from any goroutine. It fails unless Run is under way.
func (s *Source) Newest(ctx context.Context) (string, error) {
	r := s.reading.Load()
	if r == nil || !s.calls.enter("list") {
		return "", errNotRunning
	}
	defer s.calls.leave("list")
	opts := metav1.ListOptions{Limit: 1}
	if s.opts.Tweak != nil {
		s.opts.Tweak(&opts)
	}
	list, err := r.lister.ListWithContext(ctx, opts)
	switch {
	case err != nil:
		return "", explain(err)
	case object.IsNil(list):
		return "", errors.New("the source returned no list")
	}
	m, err := object.ListMeta(list)
	if err != nil {
		return "", err
	}
	return m.GetResourceVersion(), nil
}

var errNotRunning = errors.New("the source is not being read")

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
