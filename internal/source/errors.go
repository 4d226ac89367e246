package source

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/customcacheinformer/informer/internal/object"
)

// A forwarder and WatchWithContext return these errors to make the reflector list. After a 429, for
// example, the reflector would repeat the request instead.
var (
	errStreamless    = listInstead("the stream of the first state did not end")
	errStreamCut     = listInstead("the stream of the first state ended before it was complete")
	errStreamExpired = listInstead("the stream of the first state has expired")
	errStreamType    = listInstead("the stream of the first state has an object of another type, or no version")
	errStreamBack    = listInstead("the stream of the first state is older than what is known")
)

// errOverdue is the error of a watch that was silent, and that the server has not ended in time.
var errOverdue = errors.New("the watch was silent, and the server has not ended it in time")

// errVersionless is the failure that is reported for a list without a version. The list is used: some
// servers have no versions.
var errVersionless = errors.New("the list has no resourceVersion: " +
	"the watch starts at some later state, and deletes in between are missed until the next list")

func listInstead(why string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: why,
	}}
}

// cannotStream reports whether err is the answer of a server that does not support streams of the first
// state.
func cannotStream(err error) bool { return isMisunderstood(err) || apierrors.IsMethodNotSupported(err) }

// refusesStream reports whether the reflector lists at once after its request for a stream of the first
// state was answered with err. Then err need not be reported: if the server is at fault, the list fails
// too. After a 429 or a version that is too large, the reflector asks for the stream again. A request
// without an answer must be reported, because the list could hang.
func refusesStream(err error) bool {
	return !unanswered(err) && !apierrors.IsTooManyRequests(err) &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// wayOut is added to an error of decoding, to name the remedy.
const wayOut = ` (if one object cannot be decoded, informer.Transport leaves out only that one: see "cannot be decoded" in docs/operations.md)`

// explain returns err, the error of a list. If the answer could not be decoded, it adds wayOut.
func explain(err error) error {
	if err == nil || statusCode(err) != 0 || mayPass(err) || !strings.Contains(err.Error(), "unmarshal") {
		return err
	}
	return fmt.Errorf("%w%s", err, wayOut)
}

func isMisunderstood(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// withoutVersion returns err, or, if the server has rejected the version of a list, an Expired error. The
// reflector would ask for the same version forever. After an Expired error, it asks for the newest state.
func withoutVersion(err error, version string) error {
	if !isMisunderstood(err) || isAnyVersion(version) {
		return err
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("a list from resourceVersion %q: %v", version, err))
}

// unanswered reports whether err means that there was no answer.
func unanswered(err error) bool {
	var lost net.Error
	return errors.As(err, &lost) || utilnet.IsProbableEOF(err)
}

// mayPass reports whether the same request may soon succeed after err, because there was no answer, or
// because the server or a gateway is busy or away.
func mayPass(err error) bool {
	switch statusCode(err) {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case 0:
		return unanswered(err)
	}
	return false
}

func statusCode(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// statusOf returns the Status of an error event. If obj is not a Status, statusOf returns a Status that
// reports that. client-go's error would quote the object.
func statusOf(obj runtime.Object) *metav1.Status {
	message := "the watch reports an error and does not say which"
	if !object.IsNil(obj) {
		var failure *apierrors.StatusError
		if errors.As(apierrors.FromObject(obj), &failure) {
			status := failure.Status()
			// client-go could not decode an event. It reports the same for a connection that breaks: an aggregator
			// resets the stream of a watch when the server behind it dies.
			if apierrors.HasStatusCause(failure, "ClientWatchDecoding") && !strings.Contains(status.Message, "stream error: ") {
				status.Message += wayOut
			}
			return &status
		}
		message = fmt.Sprintf("the watch reports an error with a %T instead of a Status", obj)
	}
	return &metav1.Status{Status: metav1.StatusFailure, Message: message}
}
