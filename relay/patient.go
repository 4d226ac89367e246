package relay

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// patient is a source that makes client-go try again while the API server is away. client-go continues
// from its version after a refused connection and after 429. After other failures of a watch, such as the
// 503 of a load balancer without an API server, it reads the whole state again. The relay would then end
// the watches of all agents.
type patient struct {
	cache.ListerWatcherWithContext
	answered func(error) // is given the outcome of each request
	stopping context.Context
}

func newPatient(stopping context.Context, lw cache.ListerWatcher, answered func(error)) cache.ListerWatcher {
	return patient{cache.ToListerWatcherWithContext(lw), answered, stopping}
}

// until returns a ctx that ends with ctx, when the relay stops, or when the returned function is called.
// If the relay is stopping, until blocks until ctx ends. Otherwise the store could get ahead of the
// agents, which could then not continue from their versions after a restart.
func (p patient) until(ctx context.Context) (context.Context, func()) {
	if p.stopping.Err() != nil {
		<-ctx.Done()
	}
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(p.stopping, cancel)
	return ctx, func() { forget(); cancel() }
}

// ending is a watch that calls a function when it is stopped.
type ending struct {
	watch.Interface
	end func()
}

func (e ending) Stop() { e.Interface.Stop(); e.end() }

// List exists because informer.NewFrom takes the older interface. Nothing calls it or Watch.
func (p patient) List(opts metav1.ListOptions) (runtime.Object, error) {
	return p.ListWithContext(context.Background(), opts)
}

func (p patient) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return p.WatchWithContext(context.Background(), opts)
}

func (p patient) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	ctx, end := p.until(ctx)
	defer end()
	list, err := p.ListerWatcherWithContext.ListWithContext(ctx, opts)
	p.answered(err)
	return list, later(err)
}

func (p patient) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	ctx, end := p.until(ctx)
	w, err := p.ListerWatcherWithContext.WatchWithContext(ctx, opts)
	p.answered(err)
	if err != nil {
		end()
		return nil, later(err)
	}
	return ending{w, end}, nil
}

// later returns 429 for an error that shows that the API server is away: there is no answer, or its code
// is 500 or more. It returns other errors unchanged.
func later(err error) error {
	var unanswered *url.Error
	var answer apierrors.APIStatus
	switch {
	case errors.As(err, &unanswered) && !errors.Is(err, context.Canceled):
	case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge): // 504, and the state must be read again
		return err
	case errors.As(err, &answer) && answer.Status().Code >= http.StatusInternalServerError:
	default:
		return err
	}
	return apierrors.NewTooManyRequests("the API server is away or fails: "+err.Error(), 0)
}
