package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	clientfeatures "k8s.io/client-go/features"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/relay/internal/feed"
	"github.com/customcacheinformer/informer/relay/internal/serving"
)

// Relay is a read-only API server. New makes one.
type Relay struct {
	maxStaleness time.Duration
	informers    []*informer.CustomCacheInformer[informer.AnyObject]
	feeds        []*feed.Feed
	server       *serving.Server
	run          atomic.Bool
}

// New returns a Relay. It begins to listen, and makes no request for objects before Run. It may ask the
// API server for its certificate authority of clients, see Options.Authentication, and blocks for that
// long. It returns an error if the options cannot be used. Run must be called, because it releases
// what New has taken.
func New(opts Options) (*Relay, error) {
	r, err := newRelay(opts)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	return r, nil
}

func newRelay(opts Options) (*Relay, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	if !clientfeatures.FeatureGates().Enabled(clientfeatures.WatchListClient) {
		return nil, errors.New("client-go's feature WatchListClient is off, and the watch cache is filled by it")
	}
	r := &Relay{maxStaleness: opts.MaxStaleness}
	if r.maxStaleness == 0 {
		r.maxStaleness = DefaultMaxStaleness
	}
	config := serving.Config{AllowSecrets: opts.AllowSecrets, RefuseConsistentReads: opts.RefuseConsistentReads}
	for i := range opts.Resources {
		served, err := r.add(&opts.Resources[i], &opts)
		if err != nil {
			r.close()
			return nil, err
		}
		config.Resources = append(config.Resources, served)
	}
	var err error
	if config.Generic, err = r.generic(&opts); err == nil {
		r.server, err = serving.New(config)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// add makes the informer of a resource, and its feed.
func (r *Relay) add(resource *Resource, opts *Options) (serving.Resource, error) {
	none := serving.Resource{}
	lw, err := resource.source(opts.Upstream)
	if err != nil {
		return none, err
	}
	options := informer.Options[informer.AnyObject]{
		Name: resource.name(), Queue: informer.QueueRealFIFO, Transform: resource.Transform, Observer: opts.Observer,
	}
	if resource.Store != nil {
		options.Store = resource.Store
	}
	inf, err := informer.NewFrom(lw, options)
	if err != nil {
		return none, err
	}
	reached, err := resource.reached(opts.Upstream)
	if err != nil {
		return none, err
	}
	from, err := feed.New(inf, resource.newObject)
	if err != nil {
		return none, err
	}
	r.informers, r.feeds = append(r.informers, inf), append(r.feeds, from)
	return serving.Resource{
		GroupVersionResource: resource.GroupVersionResource,
		Kind:                 resource.Kind, Singular: resource.Singular, ShortNames: resource.ShortNames, Namespaced: resource.Namespaced,
		Fields: resource.Fields, Index: resource.Index, Storage: from, Reached: reached,
	}, nil
}

// generic returns the configuration of the generic API server.
func (r *Relay) generic(opts *Options) (*genericapiserver.Config, error) {
	config := serving.NewGenericConfig()
	if err := opts.Serving.ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return nil, err
	}
	config.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	if opts.Authentication != nil {
		if err := opts.Authentication.ApplyTo(&config.Authentication, config.SecureServing, nil); err != nil {
			return nil, err
		}
	}
	if opts.Authorization != nil {
		if err := opts.Authorization.ApplyTo(&config.Authorization); err != nil {
			return nil, err
		}
	}
	if opts.MinWatchTimeout > 0 {
		config.MinRequestTimeout = int(opts.MinWatchTimeout / time.Second)
	}
	if opts.MaxRequestsInFlight > 0 {
		config.MaxRequestsInFlight = opts.MaxRequestsInFlight
	}
	config.AddReadyzChecks(healthz.NamedCheck("upstream", func(*http.Request) error { return r.fresh() }))
	return config, nil
}

// Run lists and watches the resources, and serves them until ctx ends. Then it waits for the requests
// under way, ends the watches over some seconds, and returns when every goroutine that it started has
// returned, except those of k8s.io/apiserver that end by themselves. It returns nil if ctx has ended,
// and an error if the relay cannot go on. A second Run returns an error.
func (r *Relay) Run(ctx context.Context) error {
	if r.run.Swap(true) {
		return fmt.Errorf("relay: %w", informer.ErrAlreadyRun)
	}
	if err := r.serve(ctx); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	return nil
}

func (r *Relay) serve(ctx context.Context) error {
	serve, stopServing := context.WithCancel(ctx)
	defer stopServing()
	// The informers outlive the server, so that agents get the last changes.
	read, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReading()
	var reading sync.WaitGroup
	failures := make([]error, len(r.informers))
	for i, inf := range r.informers {
		reading.Go(func() {
			if failures[i] = inf.Run(read); failures[i] != nil {
				stopServing()
			}
		})
	}
	err := r.server.Run(serve)
	r.close()
	stopReading()
	reading.Wait()
	return errors.Join(append(failures, err)...)
}

// close ends the feeds.
func (r *Relay) close() {
	for _, from := range r.feeds {
		from.Close()
	}
}

// Ready returns nil if every resource can be read and the API server was heard of within
// Options.MaxStaleness. Otherwise its error says which resource is late. It does not block. The path
// /readyz of the server answers with it.
func (r *Relay) Ready() error { return errors.Join(r.server.Ready(), r.fresh()) }

// fresh returns an error that names the resources of which the API server has been silent for too long.
func (r *Relay) fresh() error {
	var late []error
	for _, inf := range r.informers {
		h := inf.Health()
		switch silent := time.Since(h.LastContact); {
		case h.LastContact.IsZero():
			late = append(late, fmt.Errorf("%s: the API server has not answered yet", h.Name))
		case silent > r.maxStaleness:
			late = append(late, fmt.Errorf("%s: the API server has been silent for %v", h.Name, silent.Round(time.Second)))
		}
	}
	return errors.Join(late...)
}

// Health returns how the informer of each resource is doing, by names such as
// "leases.v1.coordination.k8s.io". It does not block. It feeds the metrics of module metrics/prometheus
// and the page of package debug.
func (r *Relay) Health() map[string]informer.Health {
	all := map[string]informer.Health{}
	for _, inf := range r.informers {
		h := inf.Health()
		all[h.Name] = h
	}
	return all
}
