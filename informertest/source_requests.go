package informertest

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verb is a kind of request.
type Verb string

// The verbs that a [Source] answers.
const (
	VerbList  Verb = "list"
	VerbWatch Verb = "watch"
)

// Request is a LIST or WATCH that a [Source] received.
type Request struct {
	Verb    Verb
	Options metav1.ListOptions
	// Err is the error of the answer, nil if it succeeded. That includes the 410 Expired that
	// a watch gets as its only event. Err is nil while a LIST is held or slow.
	Err error
}

// waiter is one call of WaitForWatches.
type waiter struct {
	n    int
	done chan struct{}
}

// Requests returns all requests so far, in order. It does not block.
func (s *Source[T]) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := make([]Request, 0, len(s.requests))
	for _, r := range s.requests {
		requests = append(requests, Request{r.Verb, *r.Options.DeepCopy(), r.Err})
	}
	return requests
}

// record adds a request to those that Requests returns. Its Err must be set, under the lock,
// once it is known.
func (s *Source[T]) record(verb Verb, options metav1.ListOptions) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Request{Verb: verb, Options: *options.DeepCopy()}
	s.requests = append(s.requests, r)
	return r
}

// Watches returns how many watches are open. It does not block.
func (s *Source[T]) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// WaitForWatches blocks until exactly n watches are open, however briefly; if n watches are
// open already, it returns nil at once. Since Down, Disconnect and Expire leave no watch open, it
// can tell that the readers are back. An open watch does not mean that anything has been read
// from it. If ctx ends first, it returns an error that wraps that of ctx.
func (s *Source[T]) WaitForWatches(ctx context.Context, n int) error {
	w := &waiter{n: n, done: make(chan struct{})}
	s.mu.Lock()
	s.waiters[w] = true
	s.openChanged()
	s.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiters[w] {
		return nil
	}
	delete(s.waiters, w)
	return fmt.Errorf("informertest: %d watches are open, not %d: %w", len(s.open), n, ctx.Err())
}

// openChanged wakes up the calls of WaitForWatches whose number is reached. It is called with
// the lock held, whenever the number of open watches changes.
func (s *Source[T]) openChanged() {
	for w := range s.waiters {
		if w.n == len(s.open) {
			close(w.done)
			delete(s.waiters, w)
		}
	}
}

// closed notes that a watch is no longer open.
func (s *Source[T]) closed(st *stream[T]) {
	if s.open[st] {
		delete(s.open, st)
		s.openChanged()
	}
}

// endWatches ends all open watches. If cause is not nil, they pass it to their readers.
func (s *Source[T]) endWatches(cause error) {
	for st := range s.open {
		st.end(cause)
		s.closed(st)
	}
}
