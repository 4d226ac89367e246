package source

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/object"
)

// requests is the ListerWatcher that the reflector asks. It passes each request on to the
// user's, and holds the state of one Run.
type requests struct {
	source   *Source
	lister   cache.ListerWatcherWithContext // the user's
	listOnly bool                           // never stream the first state
	sink     Sink
	logger   klog.Logger

	resumption resumption
	trust      trust
	answers    *answers
	pauses     *pauses
	forwarder  atomic.Pointer[forwarder] // of the last watch
	lastWatch  time.Time                 // belongs to the reflector's goroutine
	short      atomic.Int32              // watches in a row that ended at once
	// streamless says that a stream of the first state did not end; from then on, the source
	// lists.
	streamless atomic.Bool
	// unnamed says that a request that named a version was refused, so that the next list must not
	// name one.
	unnamed  atomic.Bool
	unprobed int // probes of a suspect server that were refused since the last complete list
	// reached is the version of the last list, or of the last event after it that has one. At
	// first it is the version given to Run. It belongs to the reflector's goroutine.
	reached string
	blind   bool // a watch from no version has followed the last list; belongs to the same goroutine

	parts parts
}

func newRequests(ctx context.Context, s *Source, lister cache.ListerWatcher, sink Sink, version string) *requests {
	r := &requests{
		source: s, lister: cache.ToListerWatcherWithContext(lister), sink: sink, logger: klog.FromContext(ctx),
		listOnly:   s.opts.ListOnly || watchlist.DoesClientNotSupportWatchListSemantics(lister),
		resumption: resumption{version: version}, reached: version,
		answers: &answers{listed: version}, pauses: &pauses{clock: s.clock, first: s.opts.Backoff, next: s.opts.Backoff, end: &s.nextTry},
	}
	if example := sink.Example(); example != nil {
		r.answers.notice(example)
	}
	return r
}

// IsWatchListSemanticsUnSupported tells the reflector to list rather than to stream.
func (r *requests) IsWatchListSemanticsUnSupported() bool { return r.listOnly }

// List and Watch exist because a reflector is made of the older interface. They are not
// called.
func (r *requests) List(opts metav1.ListOptions) (runtime.Object, error) {
	return r.ListWithContext(context.Background(), opts)
}

func (r *requests) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return r.WatchWithContext(context.Background(), opts)
}

// ListWithContext answers a LIST of the reflector.
func (r *requests) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	r.stopRelay()
	first := opts.Continue == ""
	_, whole := r.parts.request()
	early := r.source.opts.Early && !whole
	list, err := r.resume(ctx)
	if list == nil && err == nil {
		if err = r.askForNewest(ctx, &opts); err == nil {
			list, err = r.listForReflector(ctx, opts)
		}
		switch {
		case err != nil:
		case early:
			list, err = r.takePage(list, first)
		default:
			r.parts.whole()
		}
	}
	if early && !first && isExpired(err) {
		err = r.parts.pageExpired(err)
	}
	if err != nil {
		if !isExpired(err) || opts.Continue == "" { // otherwise the reflector asks for all pages again
			r.failed(ctx, "list", err)
		}
		return nil, err
	}
	return list, nil
}

// listForReflector makes a LIST request of the reflector.
func (r *requests) listForReflector(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, _, err := r.list(ctx, opts, func(version string, proven bool) error {
		return r.answers.checkVersion(version, opts.Continue == "", proven)
	})
	switch {
	case err == nil:
		r.resumption.finish()
	case opts.Continue == "" && !isAnyVersion(opts.ResourceVersion) && !isExpired(err) && !mayPass(err):
		r.unnamed.Store(true)
	}
	return list, withoutVersion(err, opts.ResourceVersion)
}

// list makes one LIST request. It returns a list that the reflector can take apart, and the
// version of the list. It fails if checkVersion returns an error.
func (r *requests) list(ctx context.Context, opts metav1.ListOptions, checkVersion func(version string, proven bool) error) (list runtime.Object, version string, err error) {
	s := r.source
	if !s.calls.enter("list") {
		return nil, "", context.Canceled
	}
	defer s.calls.leave("list")
	begun := time.Now()
	if s.opts.Tweak != nil {
		s.opts.Tweak(&opts)
	}
	ctx = s.waiting.forAnswer(ctx, r.logger, "list", s.clock.Now())
	list, err = r.lister.ListWithContext(ctx, opts)
	s.waiting.answer.End()
	err = explain(err)
	if err == nil && object.IsNil(list) {
		err = errors.New("the source returned no list")
	}
	var m metav1.ListInterface
	if err == nil {
		m, err = object.ListMeta(list)
	}
	if err == nil {
		err = r.checkItems(list)
	}
	proven := false
	if err == nil {
		proven, err = r.answers.checkKind(list)
	}
	if err == nil {
		err = checkVersion(m.GetResourceVersion(), proven)
	}
	if s.callbacks.Listed != nil {
		info := List{Took: time.Since(begun), Err: err}
		if err == nil {
			info.Objects = meta.LenList(list)
		}
		s.callbacks.Listed(info)
	}
	if err != nil {
		return nil, "", err
	}
	s.lastContact.Set(s.clock)
	return list, m.GetResourceVersion(), nil
}

// checkItems returns an error if list is made for objects of another type than the sink's. An
// empty list has nothing else that shows it.
func (r *requests) checkItems(list runtime.Object) error {
	if item := object.NewItem(list); item != nil {
		return r.sink.CheckType(item)
	}
	return nil
}

// listComplete notes that a complete list has come. It reports whether a probe had found
// that the server went back in time.
func (r *requests) listComplete() (wentBack bool) {
	r.source.lastList.Set(r.source.clock)
	r.worked("list")
	r.unnamed.Store(false)
	r.unprobed = 0
	return r.trust.regain()
}

// WatchWithContext answers a watch of the reflector, which may ask for a stream of the first
// state.
func (r *requests) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	r.stopRelay()
	p := phaseLive
	switch {
	case opts.SendInitialEvents != nil && *opts.SendInitialEvents:
		p = phaseStreaming
	case r.resumption.from() != "":
		p = phaseResuming
	}
	if p == phaseStreaming && (r.resumption.from() != "" || r.streamless.Load()) {
		return nil, errStreamless // the reflector then lists
	}
	if err := r.prepareWatch(ctx, p, &opts); err != nil {
		if !isExpired(err) {
			r.failed(ctx, "watch", err)
		}
		return nil, err
	}
	if !r.source.calls.enter("watch") {
		return nil, context.Canceled
	}
	begun := time.Now()
	version := opts.ResourceVersion
	if r.source.opts.Tweak != nil {
		r.source.opts.Tweak(&opts)
	}
	ctx = r.source.waiting.forAnswer(ctx, r.logger, "watch", r.source.clock.Now())
	inner, err := r.lister.WatchWithContext(ctx, opts)
	r.source.waiting.answer.End()
	if err == nil && object.IsNil(inner) {
		err = errors.New("the source returned no watch")
	}
	if err == nil && p != phaseStreaming && !isAnyVersion(version) && time.Since(begun) >= time.Second {
		// client-go may have repeated the request, each second, after failures that it hides.
		if probed := r.probe(ctx, version); isExpired(probed) {
			inner.Stop()
			err = probed
		}
	}
	if err != nil {
		r.source.calls.leave("watch")
		r.watchOver(Watch{Streaming: p == phaseStreaming, Err: err}, begun)
		return nil, r.watchRefused(ctx, p, version, err)
	}
	r.source.lastContact.Set(r.source.clock)
	w := newForwarder(r, withoutLimit(inner), begun, p, opts.TimeoutSeconds)
	r.forwarder.Store(w)
	go func() {
		defer r.source.calls.leave("watch")
		w.run(ctx)
	}()
	return w, nil
}

// prepareWatch waits for the time of the next watch and mends the request.
func (r *requests) prepareWatch(ctx context.Context, p phase, opts *metav1.ListOptions) error {
	if p == phaseStreaming {
		return r.askForNewest(ctx, opts)
	}
	switch {
	case !isAnyVersion(opts.ResourceVersion):
	case r.reached != "":
		// The last event had no version. A watch from no version would miss earlier deletes.
		opts.ResourceVersion = r.reached
	case r.blind && r.answers.versioned.Load():
		// A second watch from no version would miss deletes too. The objects have versions, so a list may.
		return apierrors.NewResourceExpired("the last list had no resourceVersion")
	default:
		r.blind = true
	}
	r.pace(ctx)
	return r.probeIfSuspect(ctx, opts.ResourceVersion)
}

// watchRefused returns the error that the reflector gets for a watch that failed with err. It
// reports err unless a list follows.
func (r *requests) watchRefused(ctx context.Context, p phase, version string, err error) error {
	if p == phaseStreaming {
		err = withoutVersion(err, version)
	}
	switch {
	case isExpired(err):
		if p == phaseResuming {
			r.resumption.finish()
		}
	case p == phaseResuming:
		r.failed(ctx, "watch", err)
		if refusal := r.notResumed(err); refusal != nil {
			return refusal
		}
	case p == phaseStreaming && cannotStream(err): // nothing is wrong with the server
	case p == phaseStreaming && refusesStream(err):
		r.trust.lose() // something may be
	default:
		r.failed(ctx, "watch", err)
	}
	return err
}

// pace holds up a watch that follows another within shortWatch. If a watch brings something
// and ends at once, the reflector opens the next without a pause.
func (r *requests) pace(ctx context.Context) {
	if pause := shortWatch - time.Since(r.lastWatch); pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	r.lastWatch = time.Now()
}

// stopRelay stops the last watch. The reflector itself does not stop a stream whose first
// state its store has refused.
func (r *requests) stopRelay() {
	if last := r.forwarder.Swap(nil); last != nil {
		last.Stop()
	}
}

// watchOver tells the observer about a watch that was requested at that time.
func (r *requests) watchOver(info Watch, requested time.Time) {
	if r.source.callbacks.Watched != nil {
		info.Took = time.Since(requested)
		r.source.callbacks.Watched(info)
	}
}
