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

	"github.com/google/go-cmp/cmp"
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
				got := map[string]float64{}
				for name, value := range scrape(t, registered(m)) {
					if value != 0 {
						got[name] = value
					}
				}
				for _, name := range having(got, "outcome") {
					want := map[string]float64{
						fmt.Sprintf("informer_lists_total{informer=%q,outcome=%q}", "i", outcome):   1,
						fmt.Sprintf("informer_watches_total{informer=%q,outcome=%q}", "i", outcome): 2,
					}
					if got[name] != want[name] {
						t.Errorf("%v: %s is %v", err, name, got[name])
					}
				}
				if n := len(having(got, "outcome")); n != 2 {
					t.Errorf("%v: %d outcomes", err, n)
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

func TestTheSetOfOutcomesIsFixed(t *testing.T) {
	m := fixed(informer.Health{Name: "i"})
	m.Observer().List(informer.ListInfo{Informer: "i"})
	want := map[string]float64{}
	for outcome := range failures {
		want[fmt.Sprintf("informer_lists_total{informer=%q,outcome=%q}", "i", outcome)] = 0
	}
	want[`informer_lists_total{informer="i",outcome="success"}`] = 1
	all := scrape(t, registered(m))
	got := map[string]float64{}
	for _, name := range having(all, "informer_lists_total") {
		got[name] = all[name]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
