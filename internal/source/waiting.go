package source

import (
	"cmp"
	"context"
	"fmt"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer/internal/stopwatch"
	"github.com/customcacheinformer/informer/internal/turns"
)

const (
	// unansweredAfter is how long a request may have no answer before Status shows that.
	unansweredAfter = 30 * time.Second
	// unendedAfter is how long a stream of the first state may have no end before Status shows that.
	unendedAfter = 10 * time.Second
)

// waiting measures how long a source has waited for the answer to its current request, or for the end of a
// stream of the first state. It cancels nothing.
type waiting struct {
	answer, end *stopwatch.Call
	asked       atomic.Pointer[string] // text about answers that asked the client to wait; nil if none came
}

// forAnswer records that a request begins. The caller must make the request with the returned ctx. turn
// may be nil.
func (w *waiting) forAnswer(ctx context.Context, logger klog.Logger, op string, now time.Duration, turn *turns.Turn) context.Context {
	w.asked.Store(nil)
	w.answer.Begin(op, "", now)
	if turn != nil {
		// Once, because client-go repeats a request, perhaps after a long pause, if an answer asks for that.
		allow := sync.OnceFunc(func() { turn.Allow(bodyTime) })
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: allow})
	}
	return klog.NewContext(ctx, klog.New(retryTap{logger.WithCallDepth(2), &w.asked}))
}

// tooLong returns how long the request has had no answer, or 0 if that is less than unansweredAfter.
func (w *waiting) tooLong() time.Duration {
	if lasts := w.answer.Lasts(); lasts >= unansweredAfter {
		return lasts
	}
	return 0
}

// reason returns a failure that describes a wait that is too long, or nil if no wait is. before is the
// last failure, or nil.
func (w *waiting) reason(before *Failure) *Failure {
	f := Failure{Op: "watch"}
	if lasts := w.tooLong(); lasts > 0 {
		op, _ := w.answer.Current()
		asked := cmp.Or(w.asked.Load(), new(string))
		f = Failure{Op: cmp.Or(op, "list"), Err: fmt.Errorf("no answer for %v%s", lasts.Truncate(time.Second), *asked)}
	} else if lasts := w.end.Lasts(); lasts >= unendedAfter {
		f.Err = fmt.Errorf("the end of the first state has not come for %v", lasts.Truncate(time.Second))
	} else {
		return nil
	}
	if before != nil {
		f.Err = fmt.Errorf("%w; before that, %s: %w", f.Err, before.Op, before.Err)
	}
	return &f
}

// retryTap is a log sink that passes all lines on. At level 4, client-go's REST client logs that it
// repeats a request because an answer has asked for it. retryTap records these lines, because nothing else
// shows the repetition.
type retryTap struct {
	inner klog.Logger
	asked *atomic.Pointer[string]
}

func (t retryTap) Init(klog.RuntimeInfo)  {}
func (t retryTap) Enabled(level int) bool { return level <= 4 || t.inner.V(level).Enabled() }

func (t retryTap) Info(level int, msg string, values ...any) {
	if msg == "Got a Retry-After response" && len(values) >= 4 { // with delay and attempt
		asked := fmt.Sprintf(": the server has asked the client %v times to wait, the last time for %v", values[3], values[1])
		t.asked.Store(&asked)
	}
	pass := t.inner.V(level).Info
	pass(msg, values...)
}

func (t retryTap) Error(err error, msg string, values ...any) { (t.inner.Error)(err, msg, values...) }

func (t retryTap) WithValues(values ...any) klog.LogSink {
	return retryTap{t.inner.WithValues(values...), t.asked}
}

func (t retryTap) WithName(name string) klog.LogSink {
	return retryTap{t.inner.WithName(name), t.asked}
}
