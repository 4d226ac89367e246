package relay

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
)

func TestOnlyAnAbsentAPIServerIsAskedAgainForTheSame(t *testing.T) {
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
		lw := newPatient(t.Context(), &cache.ListWatch{
			ListFunc:  func(metav1.ListOptions) (runtime.Object, error) { return nil, test.err },
			WatchFunc: func(metav1.ListOptions) (watch.Interface, error) { return nil, test.err },
		}, func(error) {}).(cache.ListerWatcherWithContext)
		_, listErr := lw.ListWithContext(t.Context(), metav1.ListOptions{})
		_, watchErr := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
		for _, got := range []error{listErr, watchErr} {
			if apierrors.IsTooManyRequests(got) != test.again || !test.again && !errors.Is(got, test.err) {
				t.Errorf("%v is given to client-go as %v", test.err, got)
			}
		}
	}
}

// A relay that stops cuts its watches at the API server, and begins none, so that its store no longer changes.
func TestTheSourceIsSilentWhileTheRelayStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopping, stop := context.WithCancel(t.Context())
		ended, asked := 0, 0
		lw := newPatient(stopping, &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			asked++
			context.AfterFunc(ctx, func() { ended++ })
			return watch.NewFake(), nil
		}}, func(error) {}).(cache.ListerWatcherWithContext)
		for range 2 { // the second is open when the relay stops
			w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if asked == 1 {
				w.Stop()
			}
			synctest.Wait()
			if ended != 1 {
				t.Fatalf("%d of %d watches have ended, want that which was stopped", ended, asked)
			}
		}
		stop()
		synctest.Wait()
		if ended != 2 {
			t.Errorf("%d watches have ended, want both", ended)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		if _, _ = lw.WatchWithContext(ctx, metav1.ListOptions{}); time.Since(begun) < time.Hour {
			t.Error("a relay that stops begins a watch")
		}
	})
}
