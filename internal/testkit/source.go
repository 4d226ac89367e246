package testkit

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Opened waits until src has exactly one open watch. If that does not happen, the test fails and
// ends.
func Opened(t *testing.T, src *Source) {
	t.Helper()
	if err := src.WaitForWatches(Within(t, Hour), 1); err != nil {
		t.Fatal(err)
	}
}

// Unreachable ends the watches of src and makes every later request fail.
func Unreachable(src *Source) {
	src.Fail("list", syscall.ECONNREFUSED, -1)
	src.Fail("watch", syscall.ECONNREFUSED, -1)
	src.Disconnect()
}

// Asked returns the requests to src after the first n as text, separated by commas: "probe",
// "list", "stream", or "watch from" and the version. "gone" follows a failed request.
func Asked(src *Source, n int) string {
	var requests []string
	for _, r := range src.Requests()[n:] {
		request := r.Verb
		switch {
		case r.Verb == "list" && r.Options.Limit == 1:
			request = "probe"
		case r.Options.SendInitialEvents != nil && *r.Options.SendInitialEvents:
			request = "stream"
		case r.Verb == "watch":
			request += " from " + r.Options.ResourceVersion
		}
		if r.Err != nil {
			request += " gone"
		}
		requests = append(requests, request)
	}
	return strings.Join(requests, ", ")
}

// Dialing returns err as the error of opening a TCP connection.
func Dialing(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// Forbidden returns the answer of an API server that does not let the caller read resource.
func Forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no such role"))
}
