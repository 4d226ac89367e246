package source

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/stopwatch"
	"github.com/customcacheinformer/informer/internal/turns"
)

// reflectorLevel is added to the verbosity of the reflector's log lines. The reflector logs a line at
// Info for every watch that the server cuts. This package itself reports what matters.
const reflectorLevel = 3

// Source lists and watches one resource. Its methods may be called from any goroutine. Only one of Run,
// RunParts and RunOver may be called, and only once.
type Source struct {
	connection
	lister    cache.ListerWatcher // the user's
	opts      Options
	reflector atomic.Pointer[cache.Reflector]
	requests  atomic.Pointer[requests] // nil before Run
	run       context.Context          // of Run, RunParts or RunOver; set before requests
}

// New returns a Source that reads from lister. It makes no request.
func New(lister cache.ListerWatcher, clock stopwatch.Stopwatch, opts Options, callbacks Callbacks) *Source {
	if opts.Tweak == nil {
		opts.Tweak = func(*metav1.ListOptions) {}
	}
	if opts.Lists == nil {
		opts.Lists = func() *turns.Limit { return nil }
	}
	return &Source{lister: lister, opts: opts, connection: connection{
		callbacks: callbacks, clock: clock,
		calls: callGroup{ops: map[string]int{}}, failures: failures{ops: map[string]opFailures{}},
		waiting: waiting{answer: stopwatch.NewCall(clock), end: stopwatch.NewCall(clock)},
	}}
}

// TakeInEarly makes the source pass lists to the sink in parts, while they come in. The source then
// requests lists in pages of pageSize objects; with 0, client-go chooses the size. TakeInEarly must be
// called before Run.
func (s *Source) TakeInEarly(pageSize int64) {
	s.opts.Early, s.opts.PageSize = true, pageSize
}

// Run reads the resource into sink until ctx ends. If version is not "", it resumes with a watch from
// that version, unless the server has forgotten or lost the version. Otherwise it lists first. After
// the end of ctx, Run blocks until no call of the user's ListerWatcher is under way.
func (s *Source) Run(ctx context.Context, sink Sink, version string) {
	s.run = ctx
	s.read(ctx, newRequests(newReading(ctx, &s.connection, s.opts, sink, version), s.lister))
	s.close()
}

// Divided is a source that delivers one part of a resource at a time, such as the objects that one
// replica of a program works on. Package shards makes one. An informer calls Part instead of the
// methods of cache.ListerWatcher.
type Divided interface {
	cache.ListerWatcher
	// Part returns the part to deliver now. The informer calls it when it starts, and each time Changed
	// of the last part is closed. Part must not block.
	Part() Part
}

// Part is a part of a resource that a [Divided] source delivers. The informer lists the part, and
// watches it until Changed is closed. Only Lister is required.
//
// If an object of the last part is not in this part, it leaves the store without an event, because it
// was not deleted. The informer drops its events that wait for a watcher or for a retry. A call that is
// under way continues. If the object comes back with a later part, watchers get an add. If an object is
// in both parts but not in the list, it was deleted, and watchers get a delete.
type Part struct {
	// Lister lists and watches the objects of the part. It may deliver other objects too, such as those
	// that an API server was asked to leave out but sent anyway: the informer drops them, and Health
	// counts them as Foreign.
	Lister cache.ListerWatcher
	// Has reports whether an object with this key, such as "default/shop", is in the part. It must not
	// block, and must always return the same for a key. If Has is nil, the part has all keys.
	Has func(key string) bool
	// Changed is closed when the source has another part to deliver. If it is nil, the part never
	// changes.
	Changed <-chan struct{}
	// Applied, if not nil, is called each time a list of the part is in the store. It must not block.
	Applied func()
}

// RunParts reads one part of the resource after another into sink, until ctx ends. It calls next for
// each part, and reads the part until its Changed is closed. Each part begins with a list that is not
// older than what was read before. RunParts does not use the lister of New.
func (s *Source) RunParts(ctx context.Context, sink Sink, next func() Part) {
	s.run = ctx
	reached, doubtful, answers := "", false, (*answers)(nil)
	for {
		part := next()
		turn, end := context.WithCancel(ctx)
		var ending sync.WaitGroup
		ending.Go(func() {
			select {
			case <-part.Changed:
				end()
			case <-turn.Done():
			}
		})
		r := newReading(turn, &s.connection, s.opts, sink, "")
		r.reached, r.parts.behind, r.answers = reached, reached != "", cmp.Or(answers, r.answers)
		r.moved.Store(doubtful)
		s.read(turn, newRequests(r, part.Lister))
		s.close()
		reached, doubtful, answers = r.reached, r.doubtful(), r.answers
		end()
		ending.Wait()
		if ctx.Err() != nil {
			return
		}
		s.calls.open()
	}
}

// read runs a reflector that reads into the sink of r until ctx ends.
func (s *Source) read(ctx context.Context, r *requests) {
	quiet := r.logger.V(reflectorLevel)
	reflector := cache.NewReflectorWithOptions(r, nil, &feed{ctx: ctx, reading: r.reading, sink: r.sink}, cache.ReflectorOptions{
		Name:            s.opts.Name,
		TypeDescription: s.opts.Name,
		Logger:          &quiet,
		Clock:           stopClock{ctx: ctx, pauses: r.pauses},
	})
	reflector.WatchListPageSize = s.opts.PageSize
	s.reflector.Store(reflector)
	if before := s.requests.Swap(r); before != nil {
		close(before.replaced)
	}

	// Not reflector.RunWithContext: it gives errors to a handler that cannot be set from
	// outside its package.
	_ = wait.DelayFunc(r.pauses.step).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		before := s.failures.count.Load()
		err := reflector.ListAndWatchWithContext(klog.NewContext(ctx, quiet))
		r.turn.release() // of a list that has failed
		if err == nil || errors.Is(err, errStreamless) {
			return false, nil
		}
		if !isExpired(err) && s.failures.count.Load() == before {
			r.failed(ctx, "list", err) // only the reflector found the answer wrong
		}
		if s.callbacks.WatchFailed != nil {
			s.callbacks.WatchFailed(ctx, reflector, err)
		}
		return false, nil
	})
}

var errUnread = errors.New("the source is not being read")

// Newest asks the server for its current version of the resource, and blocks for this request. If the lister is
// replaced meanwhile, Newest asks the next one. Unlike a probe, it changes nothing. It returns an error if Run is not
// under way or the request fails.
func (s *Source) Newest(ctx context.Context) (string, error) {
	for {
		r := s.requests.Load()
		if r == nil {
			return "", errUnread
		}
		version, err := r.newest(ctx)
		if err == nil || ctx.Err() != nil || r.ctx.Err() == nil {
			return version, err
		}
		select {
		case <-r.replaced:
		case <-s.run.Done():
			return "", errUnread
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// newest makes the request of Newest. It returns an error if the reading ends first.
func (r *requests) newest(ctx context.Context) (string, error) {
	if !r.enter("list") {
		return "", errUnread
	}
	defer r.calls.leave("list")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(r.ctx, stop)()
	opts := metav1.ListOptions{Limit: 1}
	r.opts.Tweak(&opts)
	return versionOf(r.lister.ListWithContext(ctx, opts))
}

// LastVersion returns the last resourceVersion that the reflector has seen, or "" if it has seen none.
func (s *Source) LastVersion() string {
	if r := s.reflector.Load(); r != nil {
		return r.LastSyncResourceVersion()
	}
	return ""
}
