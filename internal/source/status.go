package source

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status remembers which operations on the source, "list" and "watch", fail
// now.
type status struct {
	mu      sync.Mutex // protects the rest
	ops     map[string]*opStatus
	count   int         // of all failures ever
	failing atomic.Bool // len(ops) > 0, for a cheap look
}

type opStatus struct {
	at       int // count at the last failure
	failures int // since it last worked
	last     *Failure
	reported map[string]bool // since it last worked
}

// fail notes err and returns whether it is the first of its kind since the
// operation last worked.
func (s *status) fail(err *Failure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	op := s.ops[err.Op]
	if op == nil {
		op = &opStatus{reported: map[string]bool{}}
		if s.ops == nil {
			s.ops = map[string]*opStatus{}
		}
		s.ops[err.Op] = op
	}
	s.count++
	s.failing.Store(true)
	op.at, op.last = s.count, err
	op.failures++
	kind := kindOf(err.Err)
	if op.reported[kind] {
		return false
	}
	op.reported[kind] = true
	return true
}

// kindOf returns what makes err differ from another failure: the API server's
// reason or, from elsewhere, the text of the innermost error. Numbers do not count,
// which may be ports.
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

// worked notes that an operation works, and returns how it had failed.
func (s *status) worked(op string) opStatus {
	if !s.failing.Load() {
		return opStatus{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed opStatus
	if s.ops[op] != nil {
		failed = *s.ops[op]
	}
	delete(s.ops, op)
	s.failing.Store(len(s.ops) > 0)
	return failed
}

// latest returns the latest of what fails now.
func (s *status) latest() opStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var latest opStatus
	for _, op := range s.ops {
		if op.at > latest.at {
			latest = *op
		}
	}
	return latest
}

func (s *status) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}
