package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A forwarder and WatchWithContext give these errors to the reflector to make it list. The
// reflector must not answer them by trying the same again, as it does after a 429.
var (
	errStreamless = listInstead("the stream of the first state did not end")
	errStreamCut  = listInstead("the stream of the first state ended before it was complete")
	errStreamType = listInstead("the stream of the first state has an object of another type, or no version")
	errStreamBack = listInstead("the stream of the first state is older than what is known")
)

// errOverdue is the error of a watch that was stopped because the server has not ended it.
var errOverdue = errors.New("the watch was silent, and the server has not ended it in time")

// errVersionless is the failure of a list that is taken in without a version. Some servers have none.
var errVersionless = errors.New("the list has no resourceVersion: " +
	"the watch starts at some later state, and deletes in between are missed until the next list")

func listInstead(why string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: why,
	}}
}

// cannotStream reports whether err is the answer of a server that does not know streams of
// the first state.
func cannotStream(err error) bool { return isMisunderstood(err) || apierrors.IsMethodNotSupported(err) }

// refusesStream reports whether err is an answer to a request for a stream of the first state
// after which the reflector lists at once. If the server is at fault, the list fails too, and
// that is reported. After a 429 or a version that is too large, the reflector asks for the
// stream again. A request without an answer is a failure of its own: a list could hang.
func refusesStream(err error) bool {
	return !unanswered(err) && !apierrors.IsTooManyRequests(err) &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// wayOut leads the reader of an error to the remedy.
const wayOut = ` (if one object cannot be decoded, a Transform can leave it out: see "cannot be decoded" in docs/operations.md)`

// explain returns the error of a list. If the answer could not be decoded, the error leads to the remedy.
func explain(err error) error {
	if err == nil || statusCode(err) != 0 || mayPass(err) || !strings.Contains(err.Error(), "unmarshal") {
		return err
	}
	return fmt.Errorf("%w%s", err, wayOut)
}

// undecoded reports whether the status stands for an event that client-go could not decode.
func undecoded(status metav1.Status) bool {
	return status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == "ClientWatchDecoding" })
}

func isMisunderstood(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// failed notes that an operation has failed. It reports err unless an error of that kind was
// reported since the operation last worked.
func (r *requests) failed(ctx context.Context, op string, err error) {
	if ctx.Err() != nil {
		return
	}
	r.trust.lose()
	r.pauses.interrupted()
	failure := &Failure{Op: op, Err: err}
	if r.source.failures.add(failure) {
		r.source.callbacks.Failed(ctx, failure)
	}
}

// worked notes that an operation has delivered something good.
func (r *requests) worked(op string) {
	if before := r.source.failures.remove(op); before.failures > 0 {
		r.logger.Info("The source works again", "operation", op, "failures", before.failures)
	}
	if op == "watch" && !r.source.failures.failing.Load() {
		r.pauses.worked()
	}
}

// watchEnded notes that a watch has ended without an error. One watch that ends at once is no
// failure. Several in a row are, and only this function notices it.
func (r *requests) watchEnded(ctx context.Context, atOnce bool) {
	if !atOnce {
		r.short.Store(0)
	} else if r.short.Add(1) >= 3 {
		r.failed(ctx, "watch", errors.New("watches end as soon as they have begun"))
	}
}

// failures remembers which operations fail now, "list" and "watch".
type failures struct {
	mu      sync.Mutex // protects the rest
	ops     map[string]*opFailures
	count   int         // of all failures ever
	failing atomic.Bool // len(ops) > 0, readable without the lock
}

// opFailures describes the failures of one operation since it last worked.
type opFailures struct {
	at       int       // failures.count at the last one
	since    time.Time // when the first of them came
	failures int
	last     *Failure
	reported map[string]bool // by kind
}

// add notes f. It reports whether f is the first of its kind since the operation last worked.
func (s *failures) add(f *Failure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	op := s.ops[f.Op]
	if op == nil {
		op = &opFailures{since: time.Now(), reported: map[string]bool{}}
		if s.ops == nil {
			s.ops = map[string]*opFailures{}
		}
		s.ops[f.Op] = op
	}
	s.count++
	s.failing.Store(true)
	op.at, op.last = s.count, f
	op.failures++
	kind := kindOf(f.Err)
	if op.reported[kind] {
		return false
	}
	op.reported[kind] = true
	return true
}

// remove notes that an operation works, and returns its failures until now.
func (s *failures) remove(op string) opFailures {
	if !s.failing.Load() {
		return opFailures{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var before opFailures
	if s.ops[op] != nil {
		before = *s.ops[op]
	}
	delete(s.ops, op)
	s.failing.Store(len(s.ops) > 0)
	return before
}

// latest returns the failures of the operation that failed last, of those that fail now.
func (s *failures) latest() opFailures {
	s.mu.Lock()
	defer s.mu.Unlock()
	var latest opFailures
	for _, op := range s.ops {
		if op.at > latest.at {
			latest = *op
		}
	}
	return latest
}

// total returns the number of all failures ever.
func (s *failures) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// kindOf returns the part of err that tells kinds of failures apart: the API server's reason
// or, for other errors, the text of the innermost error without its digits, which may be
// ports.
func kindOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
}
