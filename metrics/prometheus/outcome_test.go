package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/customcacheinformer/informer"
)

var pods = schema.GroupResource{Resource: "pods"}

// failures maps each outcome to errors of requests that have it.
var failures = map[string][]error{
	"success": {nil},
	"expired": {apierrors.NewResourceExpired("too old"), apierrors.NewGone("gone")},
	"forbidden": {
		apierrors.NewUnauthorized("who are you"),
		apierrors.NewForbidden(pods, "", errors.New("no")),
	},
	"notfound":  {apierrors.NewNotFound(pods, "")},
	"throttled": {apierrors.NewTooManyRequests("later", 1), apierrors.NewTooManyRequestsError("later")},
	"unavailable": {
		syscall.ECONNREFUSED,
		&url.Error{Op: "Get", URL: "https://127.0.0.1", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		context.DeadlineExceeded,
		&url.Error{Op: "Get", URL: "https://127.0.0.1", Err: os.ErrDeadlineExceeded},
		apierrors.NewServiceUnavailable("starting"),
		apierrors.NewInternalError(errors.New("etcd")),
		apierrors.NewServerTimeout(pods, "list", 1),
		apierrors.NewTimeoutError("slow", 1),
		apierrors.NewGenericServerResponse(http.StatusBadGateway, "get", pods, "", "", 0, true),
		apierrors.FromObject(&metav1.Status{Reason: metav1.StatusReasonInternalError}), // without a code
	},
	"error": {
		errors.New("something else"),
		apierrors.NewBadRequest("what"),
		apierrors.NewMethodNotSupported(pods, "watch"),
		context.Canceled,
	},
}

func TestEachFailureHasItsOutcome(t *testing.T) {
	for outcome, errs := range failures {
		for _, err := range errs {
			for _, err := range []error{err, wrapped(err)} {
				m := fixed(informer.Health{Name: "i"})
				m.Observer().List(informer.ListInfo{Informer: "i", Err: err})
				m.Observer().Watch(informer.WatchInfo{Informer: "i", Err: err})
				m.Observer().Watch(informer.WatchInfo{Informer: "i", Err: err})
				want := values{}
				for o := range failures { // no others, and all from the beginning
					want[fmt.Sprintf("informer_lists_total{informer=%q,outcome=%q}", "i", o)] = 0
					want[fmt.Sprintf("informer_watches_total{informer=%q,outcome=%q}", "i", o)] = 0
				}
				want[fmt.Sprintf("informer_lists_total{informer=%q,outcome=%q}", "i", outcome)] = 1
				want[fmt.Sprintf("informer_watches_total{informer=%q,outcome=%q}", "i", outcome)] = 2
				if of(t, scrape(t, registered(m)), "outcome", want); t.Failed() {
					t.Fatal(err)
				}
			}
		}
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("wrapped: %w", err)
}
