package source

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/customcacheinformer/informer/internal/object"
)

// requests is the ListerWatcher of the reflector. It passes each request on to the user's
// ListerWatcher.
type requests struct {
	client
	listOnly  bool                      // never stream the first state
	replaced  chan struct{}             // closed when a later reading of the source begins
	forwarder atomic.Pointer[forwarder] // of the last watch
	lastWatch time.Time                 // belongs to the reflector's goroutine
}

func newRequests(r *reading, lister cache.ListerWatcher) *requests {
	return &requests{
		client:   client{reading: r, lister: cache.ToListerWatcherWithContext(lister)},
		listOnly: r.opts.ListOnly || watchlist.DoesClientNotSupportWatchListSemantics(lister),
		replaced: make(chan struct{}),
	}
}

// IsWatchListSemanticsUnSupported returns true if the reflector must list instead of stream the
// first state.
func (r *requests) IsWatchListSemanticsUnSupported() bool { return r.listOnly }

// List exists because a reflector takes the older interface. Nothing calls it or Watch.
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
	early := r.opts.Early && !whole
	list, err := r.resume(ctx)
	if list == nil && err == nil {
		if err = r.prepareList(ctx, &opts); err == nil {
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
	if err != nil && (first || !isExpired(err)) { // otherwise the reflector asks for all pages again
		r.failed(ctx, "list", err)
	}
	return list, err
}

func (r *requests) listForReflector(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, _, err := r.list(ctx, opts, func(version string, proven bool) error {
		return r.answers.checkVersion(version, opts.Continue == "", proven)
	})
	switch {
	case err == nil:
		r.resumption.finish()
	case opts.Continue == "" && !isAnyVersion(opts.ResourceVersion) && !isExpired(err) && !mayPass(err):
		r.trust.unnamed.Store(true)
	}
	return list, withoutVersion(err, opts.ResourceVersion)
}

// resume returns an empty list if the source can continue from an old version. It returns a nil
// list and a nil error if the reflector must list.
func (r *requests) resume(ctx context.Context) (runtime.Object, error) {
	version := r.resumption.from()
	if version == "" {
		return nil, nil
	}
	err := r.probe(ctx, version)
	switch {
	case err == nil:
		r.resumption.listed.Store(true)
		return &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
	case isExpired(err):
		r.resumption.finish()
	case r.resumption.refuse(err, false):
		r.trust.unnamed.Store(true) // a list may work; if it does, it ends the resumption
	default:
		return nil, err
	}
	return nil, nil
}

// takePage passes the objects of a page to the sink, and returns the page without them.
func (r *requests) takePage(page runtime.Object, first bool) (runtime.Object, error) {
	if !r.enter(ownWork) {
		return nil, context.Canceled
	}
	defer r.calls.leave(ownWork)
	m, err := object.ListMeta(page)
	if err != nil {
		return nil, err
	}
	rest := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: m.GetResourceVersion(), Continue: m.GetContinue()}}
	objs, err := meta.ExtractListWithAlloc(page)
	if err != nil {
		return nil, err
	}
	for _, obj := range objs {
		if err := r.sink.CheckType(obj); err != nil {
			return nil, err
		}
	}
	if len(objs) > 0 {
		r.answers.kind.learn(objs[0]) // notice does not, if the sink has objects of an earlier list
	}
	// client-go recovers a panic in the pager, and panics again elsewhere. A goroutine of its own
	// lets the trace show the function of the user that has panicked.
	var taking sync.WaitGroup
	taking.Go(func() {
		if first {
			if older(rest.ResourceVersion, r.reached) || older(rest.ResourceVersion, r.parts.last()) {
				r.trust.state.Store(wentBack) // until a list is complete
			}
			r.parts.begin(r.sink, rest.ResourceVersion, r.doubtful())
		}
		r.parts.take(func() {
			for i, obj := range objs {
				objs[i] = nil // it can be collected when the sink has it
				r.answers.notice(obj)
				r.sink.Upsert(obj, "")
			}
		})
	})
	taking.Wait()
	return rest, nil
}

// WatchWithContext answers a watch of the reflector, which may be a stream of the first state.
func (r *requests) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (answer watch.Interface, err error) {
	r.stopRelay()
	defer func() {
		if err != nil { // the reflector may pause now
			r.turn.release()
		}
	}()
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
	if !r.enter("watch") {
		return nil, context.Canceled
	}
	begun := time.Now()
	version := opts.ResourceVersion
	r.opts.Tweak(&opts)
	ctx = r.waiting.forAnswer(ctx, r.logger, "watch", r.clock.Now(), r.turn.Load())
	inner, taken, err := r.watch(ctx, opts)
	r.waiting.answer.End()
	r.Progress()
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
		r.calls.leave("watch")
		r.watchOver(Watch{Streaming: p == phaseStreaming, Err: err}, begun)
		return nil, r.watchRefused(ctx, p, version, err)
	}
	r.lastContact.Set(r.clock)
	w := newForwarder(r.reading, withoutLimit(inner), taken, begun, p, opts.TimeoutSeconds)
	r.forwarder.Store(w)
	go func() {
		defer r.calls.leave("watch")
		w.run(ctx)
	}()
	return w, nil
}

// prepareWatch waits until the next watch may begin, and adjusts the options of the request.
func (r *requests) prepareWatch(ctx context.Context, p phase, opts *metav1.ListOptions) error {
	if p == phaseStreaming {
		return r.prepareList(ctx, opts)
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

// watchRefused returns the error for the reflector after a watch has failed with err. It reports
// err unless a list follows.
func (r *requests) watchRefused(ctx context.Context, p phase, version string, err error) error {
	if p == phaseStreaming {
		err = withoutVersion(err, version)
	}
	switch {
	case p == phaseStreaming && isExpired(err) && isAnyVersion(version):
		r.trust.lose()
		return errStreamExpired // otherwise the reflector would ask for the same again, without a pause
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

// pace blocks until shortWatch has passed since the last watch. If a watch brings something and
// ends at once, the reflector would open the next without a pause.
func (r *requests) pace(ctx context.Context) {
	if pause := shortWatch - time.Since(r.lastWatch); pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	r.lastWatch = time.Now()
}

// stopRelay stops the last watch. The reflector does not stop a stream whose first state its
// store has refused.
func (r *requests) stopRelay() {
	if last := r.forwarder.Swap(nil); last != nil {
		last.Stop()
	}
}
