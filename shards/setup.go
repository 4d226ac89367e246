package shards

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/object"
	"github.com/customcacheinformer/informer/internal/sharding"
	"github.com/customcacheinformer/informer/shards/internal/leases"
)

// New returns a set that keeps its Leases with leases, a client for the Leases of one namespace such as
// clientset.CoordinationV1().Leases("default"). New makes no request; Run does. If leases is nil or an option
// cannot be used, New returns an error that names it.
//
// The set calls leases from several goroutines at once. A rate limit of the client delays the moves of
// buckets: with client-go's default of 5 requests a second, 64 buckets take ten seconds. So set QPS to -1 in
// the rest.Config of the client.
func New(leases coordinationclient.LeaseInterface, opts Options) (*Set, error) {
	if object.IsNil(leases) {
		return nil, errors.New("shards: New: leases is nil")
	}
	opts, err := opts.complete()
	if err != nil {
		return nil, fmt.Errorf("shards: New: %w", err)
	}
	s := &Set{
		opts: opts, leases: leases, started: make(chan struct{}), synced: make(chan struct{}), stopped: make(chan struct{}),
		wake: make(chan struct{}, 1), filling: make(chan struct{}, 1), old: map[*session]bool{},
	}
	s.option, s.view = sharding.NewHandle(door{s}), newView(&s.opts)
	s.watched, err = informer.NewFrom(informer.ListWatch(s.labelled()), informer.Options[*coordinationv1.Lease]{
		Name: opts.Name + " (Leases)", WatchList: informer.WatchListOff, // they are few
		Backoff:      opts.backoff(),
		ErrorHandler: opts.ErrorHandler,
	})
	if err != nil {
		return nil, fmt.Errorf("shards: New: %w", err)
	}
	return s, nil
}

// labelled returns a client that lists and watches only the Leases of the set.
func (s *Set) labelled() labelled { return labelled{s.leases, leases.Selector(s.opts.Name)} }

type labelled struct {
	coordinationclient.LeaseInterface
	selector string
}

func (l labelled) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	opts.LabelSelector = l.selector
	return l.LeaseInterface.List(ctx, opts)
}

func (l labelled) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.LabelSelector = l.selector
	return l.LeaseInterface.Watch(ctx, opts)
}
