package relay

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/relay/internal/feed"
)

// served is a resource of the relay with its informer.
type served struct {
	Resource
	inf   *informer.CustomCacheInformer[informer.AnyObject]
	feed  *feed.Feed
	gone  atomic.Bool           // the last answer of the API server was that it does not exist
	ended atomic.Pointer[error] // the error of the informer's Run, if it has failed
}

// answered records the outcome of a request to the API server. If the resource does not exist any more,
// it ends all watches.
func (s *served) answered(err error) {
	switch {
	case err == nil:
		s.gone.Store(false)
	case apierrors.IsNotFound(err) && !s.gone.Swap(true):
		s.feed.Interrupt() // agents must not keep objects that do not exist
	}
}

// absent returns the error for reads while there is no state to serve, and nil otherwise. It is 404 if the resource does not
// exist, and 503 if the informer has failed or cannot read its first state now. A first state that comes is waited for.
func (s *served) absent() error {
	if s.gone.Load() {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", s.GroupResource(), "", "", 0, true)
	}
	if err := s.ended.Load(); err != nil {
		return unavailable(s.name(), *err)
	}
	select {
	case <-s.inf.Synced():
		return nil
	default:
	}
	if h := s.inf.Health(); h.SourceFailures > 0 || h.SourceWaiting > 0 {
		return unavailable(s.name(), h.SourceError)
	}
	return nil
}

func unavailable(name string, reason error) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("the relay cannot serve %s: %v", name, reason))
}

// problem returns why agents get no answer or an old one, or nil. An answer is old if the API server has been silent for more
// than maxStaleness, or if for that time requests have failed and nothing else has brought a version. state is the result of
// HasState. begins is true if the first state may still be on its way.
func (s *served) problem(maxStaleness time.Duration, state error) (reason error, begins bool) {
	h := s.inf.Health()
	silent := time.Since(h.LastContact)
	if h.SourceFailures > 0 && !h.LastProgress.IsZero() {
		silent = max(silent, time.Since(h.LastProgress)) // lists may fail in the middle, again and again
	}
	absent := s.absent()
	switch {
	case absent != nil:
		reason = absent
	case h.LastContact.IsZero():
		reason = errors.New("the API server has not answered yet")
	case silent > maxStaleness && h.SourceError != nil:
		reason = fmt.Errorf("the state is %v old: %w", silent.Round(time.Second), h.SourceError)
	case silent > maxStaleness:
		reason = fmt.Errorf("the API server has been silent for %v", silent.Round(time.Second))
	default:
		reason = state
	}
	if reason != nil {
		reason = fmt.Errorf("%s: %w", h.Name, reason)
	}
	return reason, absent == nil && !h.Synced
}
