package source

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failures records which of the operations "list" and "watch" are failing.
type failures struct {
	count   atomic.Int64 // of all failures ever
	failing atomic.Bool  // len(ops) > 0, readable without the lock

	mu  sync.Mutex            // held to change any of these
	ops map[string]opFailures // protected by mu
}

type opFailures struct {
	at       int64     // failures.count at the last one
	since    time.Time // when the first of them came
	failures int
	last     *Failure
	reported map[string]bool // by kind
}

// add records f. It reports whether f is the first failure of its kind since the operation last
// worked.
func (s *failures) add(f *Failure) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op := s.ops[f.Op]
	if op.failures == 0 {
		op.since, op.reported = time.Now(), map[string]bool{}
	}
	op.at, op.last = s.count.Add(1), f
	op.failures++
	s.ops[f.Op] = op
	s.failing.Store(true)
	kind := kindOf(f.Err)
	first = !op.reported[kind]
	op.reported[kind] = true
	return first
}

// remove records that an operation works, and returns its failures up to now.
func (s *failures) remove(op string) opFailures {
	if !s.failing.Load() {
		return opFailures{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.ops[op]
	delete(s.ops, op)
	s.failing.Store(len(s.ops) > 0)
	return before
}

// latest returns the failures of the operation that is failing and has failed last. It returns
// the zero value if none is failing.
func (s *failures) latest() opFailures {
	s.mu.Lock()
	defer s.mu.Unlock()
	var latest opFailures
	for _, op := range s.ops {
		if op.at > latest.at {
			latest = op
		}
	}
	return latest
}

// kindOf returns the part of err that distinguishes kinds of failures: the API server's reason
// or, for other errors, the text of the innermost error without digits, because these may be
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
