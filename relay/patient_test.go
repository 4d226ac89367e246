package relay

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
)

func TestOnlyAnAPIServerThatIsAwayIsAskedAgainForTheSame(t *testing.T) {
	answer := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "watch", schema.GroupResource{}, "", "", 0, true)
	}
	for _, test := range []struct {
		err   error
		again bool
	}{
		{answer(http.StatusInternalServerError), true},
		{answer(http.StatusBadGateway), true},
		{answer(http.StatusServiceUnavailable), true},
		{answer(http.StatusGatewayTimeout), true},
		{answer(http.StatusTooManyRequests), true},
		{&url.Error{Op: "Get", Err: errors.New("no route to host")}, true},
		{&url.Error{Op: "Get", Err: context.Canceled}, false},
		{storage.NewTooLargeResourceVersionError(2, 1, 1), false},
		{answer(http.StatusGone), false},
		{answer(http.StatusForbidden), false},
		{answer(http.StatusMethodNotAllowed), false},
		{errors.New("the answer cannot be decoded"), false},
		{nil, false},
	} {
		lw := newPatient(&cache.ListWatch{
			ListFunc:  func(metav1.ListOptions) (runtime.Object, error) { return nil, test.err },
			WatchFunc: func(metav1.ListOptions) (watch.Interface, error) { return nil, test.err },
		}).(cache.ListerWatcherWithContext)
		_, listErr := lw.ListWithContext(t.Context(), metav1.ListOptions{})
		_, watchErr := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
		for _, got := range []error{listErr, watchErr} {
			if apierrors.IsTooManyRequests(got) != test.again || !test.again && !errors.Is(got, test.err) {
				t.Errorf("%v is given to client-go as %v", test.err, got)
			}
		}
	}
}
