package source

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
