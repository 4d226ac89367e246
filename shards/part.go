package shards

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/shards/internal/plan"
)

// part delivers the objects in some buckets.
type part struct {
	source   *source
	buckets  sharding.Buckets
	ranges   *plan.Ranges // nil if they are not known, and there are no buckets
	selector string       // for the API server; "" if nothing can be selected
	begun    time.Time
	changed  chan struct{}
	turning  *time.Timer // closes changed; nil if it is not due
	due      time.Time

	mu      sync.Mutex // protects the rest
	refused bool       // the server has refused the selector
}

func (p *part) has(key string) bool {
	return len(p.buckets) > 0 && p.buckets.Has(p.ranges.Bucket(plan.Namespace(key)))
}

// IsWatchListSemanticsUnSupported reports to client-go whether to list rather than to stream the first
// state.
func (p *part) IsWatchListSemanticsUnSupported() bool { return p.source.unstreamable }

// List calls ListWithContext with an empty ctx, for readers of the older interface.
func (p *part) List(opts metav1.ListOptions) (runtime.Object, error) {
	return p.ListWithContext(context.Background(), opts)
}

func (p *part) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return p.WatchWithContext(context.Background(), opts)
}

// ListWithContext lists the objects in the part, or all objects if the server does not select.
func (p *part) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.Continue == "" {
		p.probe(ctx)
	}
	list, err := p.source.all.ListWithContext(ctx, p.narrow(opts))
	if p.refuses(err) {
		list, err = p.source.all.ListWithContext(ctx, p.narrow(opts))
	}
	p.source.answered(ctx, err)
	return list, err
}

// WatchWithContext watches the objects in the part, or all objects if the server does not select.
func (p *part) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := p.source.all.WatchWithContext(ctx, p.narrow(opts))
	if p.refuses(err) {
		w, err = p.source.all.WatchWithContext(ctx, p.narrow(opts))
	}
	if err == nil { // a server may refuse to stream the first state
		p.source.answered(ctx, nil)
		// Another API server may answer now. This comes behind the watch: a probe that fails with the connection of
		// the last watch would show nothing until the next one.
		p.probe(ctx)
	}
	return w, err
}

// narrow returns options that ask only for the objects of the part.
func (p *part) narrow(opts metav1.ListOptions) metav1.ListOptions {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(p.buckets) == 0 || p.selector == "":
		opts.FieldSelector = noObject
	case !p.refused && len(p.buckets) < p.source.total:
		opts.ShardSelector = p.selector
	}
	return opts
}

// refuses reports whether err means that the server does not understand the selector, or that it is
// too long: it may have 90 bytes for each bucket. The part then asks without the selector. refuses
// returns true only once.
func (p *part) refuses(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused || !isBadSelector(err) && !isTooLong(err) {
		return false
	}
	p.refused = true
	p.source.found(selectorIgnored)
	return true
}

// probe finds out whether the server selects. A server that does not select ignores the selector. A
// server that selects refuses the selector "?". The answer has no objects.
func (p *part) probe(ctx context.Context) {
	p.mu.Lock()
	refused := p.refused
	p.mu.Unlock()
	if refused {
		return // a server that selects does not select for this part
	}
	opts := metav1.ListOptions{Limit: 1, FieldSelector: noObject, ShardSelector: "?"}
	switch _, err := p.source.all.ListWithContext(ctx, opts); {
	case err == nil:
		p.source.found(selectorIgnored)
	case isBadSelector(err):
		p.source.found(selectorServed)
	}
}

func isBadSelector(err error) bool {
	return err != nil && strings.Contains(err.Error(), "invalid shard selector")
}

// isTooLong reports whether err is a 414 or a 431, the answers to a URL or headers that are too long.
func isTooLong(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code == http.StatusRequestURITooLong || code == http.StatusRequestHeaderFieldsTooLarge
}
