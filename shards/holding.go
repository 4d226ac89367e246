package shards

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// errDrained is the cause (context.Cause) of a call's ctx if the bucket moves to another replica, and the
// call has not returned within Options.DrainTimeout.
var errDrained = errors.New("shards: the bucket moves to another replica")

// errSessionLost is the cause if the replica has lost its session, so that another replica may have its
// buckets.
var errSessionLost = fmt.Errorf("shards: the session is lost: %w", informer.ErrLeaseLost)

// phase is the state of a bucket in this replica.
type phase uint8

const (
	taking    phase = iota // the request for its Lease is under way
	catching               // the workers' caches may be older than those of the last holder
	open                   // calls may be made
	releasing              // no call begins; the bucket is released when all have returned
)

// holding is a bucket that a session has. The lock of the session protects it.
type holding struct {
	session *session
	bucket  int
	phase   phase
	since   time.Time       // the begin of the phase
	calls   int             // the number of calls under way
	known   leases.Versions // what each worker knew when the phase became open, nil before
	idle    chan struct{}   // closed when releasing and no call is under way
	ctx     context.Context // of the calls: it ends with the session, or when a release cancels them
	cancel  context.CancelCauseFunc

	// The set's lock protects the rest.
	lease  *coordinationv1.Lease // its last written state; nil while taking
	token  int32                 // the fencing token; does not change once the phase is open
	before leases.Past           // what the last holder had seen
}

// begin moves h to another phase. The caller holds both locks.
func (h *holding) begin(p phase) {
	h.phase, h.since = p, time.Now()
	if p == releasing && h.calls == 0 {
		close(h.idle)
	}
}

// took records that the replica has the bucket. It returns false if the session is over.
func (h *holding) took(lease *coordinationv1.Lease) bool {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	if h.session.lost {
		return false
	}
	h.lease, h.token, h.before = lease, leases.Token(lease), leases.ReadPast(lease)
	h.begin(catching)
	return true
}

// opened records that the caches are new enough for calls. known has their versions. opened returns false if
// the replica no longer has the bucket.
func (h *holding) opened(known leases.Versions) bool {
	s := h.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost || h.phase != catching {
		return false
	}
	h.known = known
	h.begin(open)
	s.fresh.Insert(h.bucket)
	s.lag.times = 0
	return true
}

// release begins the phase releasing, in which no call begins.
func (h *holding) release() {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	h.begin(releasing)
}

// done records that a call has returned. It reports whether it was the last call of a bucket of a lost
// session.
func (h *holding) done() bool {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	h.calls--
	if h.calls == 0 && h.phase == releasing {
		close(h.idle)
	}
	return h.calls == 0 && h.session.lost
}
