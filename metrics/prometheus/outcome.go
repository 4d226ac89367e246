package prometheus

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// outcome is how a LIST or a watch ended, for the label of its counter.
type outcome uint8

const (
	success outcome = iota
	expired
	forbidden
	notFound
	throttled
	unavailable
	failed
	outcomes // number of outcomes
)

func (o outcome) String() string {
	return [outcomes]string{
		success: "success", expired: "expired", forbidden: "forbidden", notFound: "notfound",
		throttled: "throttled", unavailable: "unavailable", failed: "error",
	}[o]
}

// outcomeOf returns the outcome of a LIST or a watch that ended with err.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return success
	case apierrors.IsGone(err) || apierrors.IsResourceExpired(err):
		return expired
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsNotFound(err):
		return notFound
	case apierrors.IsTooManyRequests(err):
		return throttled
	case isServerError(err) || isConnectionError(err):
		return unavailable
	}
	return failed
}

// isServerError reports whether err is a 5xx. It also looks at the reason, because a status in
// the stream of a watch may have no code.
func isServerError(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError ||
		apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err)
}

// isConnectionError reports whether err means that there was no answer or only a part of one, as
// when an API server restarts.
func isConnectionError(err error) bool {
	return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err)
}
