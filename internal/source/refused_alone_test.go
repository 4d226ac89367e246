package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusals are answers to a request for a stream after which the reflector lists.
var refusals = map[string]error{
	"403":                       errForbidden,
	"500":                       apierrors.NewInternalError(errors.New("boom")),
	"503":                       apierrors.NewServiceUnavailable("not now"),
	"504":                       apierrors.NewTimeoutError("too slow", 1),
	"of no API server":          errors.New("no version"),
	"of a FakeControllerSource": &strconv.NumError{Func: "Atoi", Err: strconv.ErrSyntax},
}

func TestARefusedStreamIsNoFailureIfAListWorks(t *testing.T) {
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startAlone(t, streaming(), "", fails(refusal), lists("5"))
				p.expect(lines("stream", "list as of 0", "watch from 5"), lines(`list [] at "5"`), nil)
				if s := p.source.Status(); s.Failure != nil || s.Failures != 0 {
					t.Errorf("the status is %+v", s)
				}
			})
		})
	}
}

func TestARefusedStreamAndAFailedListAreReportedAsAFailedList(t *testing.T) {
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startAlone(t, streaming(), "", fails(refusal), fails(refusal), fails(refusal), fails(refusal))
				p.after(1500*time.Millisecond, lines("stream", "list as of 0", "stream", "list as of 0"), nil, lines(fmt.Sprintf("list failed: %v", refusal)))
				if s := p.source.Status(); s.Failure == nil || s.Failures != 2 {
					t.Errorf("the status is %+v", s)
				}
			})
		})
	}
}

// client-go would ask for the stream again, without a pause, for as long as the server answers so.
func TestAnExpiredStreamOfTheFirstStateIsFollowedByAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, streaming(), "", fails(errExpired), lists("5"))
		p.expect(lines("stream", "list as of 0", "watch from 5"), lines(`list [] at "5"`), nil)
	})
}

func TestAServerThatRefusesAStreamIsProbedBeforeAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startAlone(t, streaming(), "", ends(complete("5"), modified("a", "6")), fails(errExpired), fails(refusals["503"]), lists("4"), lists("4"))
		p.after(5*time.Second, lines("stream", "watch from 6", "stream", "probe", "list the newest", "watch from 4"),
			lines(`list [] at "5"`, `upsert a, at "6"`, `list [] at "4", went back`),
			lines("list failed: the server has gone back in time: its state of resourceVersion 4 takes the place of that of 6"))
	})
}

func TestAStreamWithoutAnAnswerIsReportedAtOnce(t *testing.T) {
	tooLarge := apierrors.NewTimeoutError("too large", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, c := range map[string]struct {
		failure error
		next    string // the next request, which hangs
	}{
		"no connection": {&url.Error{Op: "Get", URL: "https://api", Err: syscall.ECONNREFUSED}, "stream"},
		"a timeout":     {&url.Error{Op: "Get", URL: "https://api", Err: context.DeadlineExceeded}, "list as of 0"},
		"cut off":       {&url.Error{Op: "Get", URL: "https://api", Err: io.ErrUnexpectedEOF}, "list as of 0"},
		"429":           {apierrors.NewTooManyRequests("later", 1), "stream"},
		"too large":     {tooLarge, "stream"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startAlone(t, streaming(), "", fails(c.failure))
				p.after(time.Minute, lines("stream", c.next), nil, lines(fmt.Sprintf("watch failed: %v", c.failure)))
			})
		})
	}
}
