package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/relay/internal/feed"
	"github.com/customcacheinformer/informer/relay/internal/serving"
)

// Relay is a read-only API server. [New] makes one, and [Relay.Run] serves. Its methods may be called
// from any goroutine.
type Relay struct {
	opts     Options
	server   *serving.Server
	run      atomic.Bool
	begun    atomic.Bool // it was ready once
	stopping context.Context
	stop     context.CancelFunc

	mu     sync.Mutex // protects the rest
	served []*served
	// unknown has the reason for each of Options.Names that is not served, nil before the first answer.
	unknown map[string]error
}

// New returns a Relay. New begins to listen, but makes no request for objects; Run does. It may block to
// ask the API server for the certificate authority of clients, see Options.Authentication. It returns an
// error if the options cannot be used, or if client-go's feature WatchListClient is off. Otherwise you must
// call Run, because Run releases what New has opened.
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
	opts.Upstream, opts.Names = rest.CopyConfig(opts.Upstream), slices.Clone(opts.Names) // the caller may change theirs
	r := &Relay{opts: opts, unknown: map[string]error{}}
	if r.opts.MaxStaleness == 0 {
		r.opts.MaxStaleness = DefaultMaxStaleness
	}
	r.stopping, r.stop = context.WithCancel(context.Background())
	for _, name := range opts.Names {
		r.unknown[name] = nil
	}
	config := serving.Config{
		AllowSecrets: opts.AllowSecrets, RefuseConsistentReads: opts.RefuseConsistentReads,
		KeepAnonymous: opts.Authentication == nil,
		Unknown:       r.whyUnknown,
	}
	for i := range opts.Resources {
		s, resource, err := r.make(opts.Resources[i])
		if err != nil {
			r.close()
			return nil, err
		}
		r.served, config.Resources = append(r.served, s), append(config.Resources, resource)
	}
	var err error
	listens := opts.Serving.Listener != nil
	if config.Generic, err = r.generic(&opts); err == nil {
		r.server, err = serving.New(config)
	}
	if err != nil {
		if !listens && opts.Serving.Listener != nil {
			err = errors.Join(err, opts.Serving.Listener.Close())
			opts.Serving.Listener = nil
		}
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *Relay) make(resource Resource) (*served, serving.Resource, error) {
	resource.Fields, resource.ShortNames = slices.Clone(resource.Fields), slices.Clone(resource.ShortNames)
	s, none := &served{Resource: resource}, serving.Resource{}
	lw, err := s.source(r.stopping, r.opts.Upstream, s.answered)
	if err != nil {
		return nil, none, err
	}
	options := informer.Options[informer.AnyObject]{
		Name: s.name(), Queue: informer.QueueRealFIFO, Durable: s.Store, Transform: s.Transform, Observer: r.opts.Observer,
		Intake: informer.IntakeWhole, // with a part of a list there would be no exact state to serve, however often the next part fails
		ErrorHandler: func(ctx context.Context, err error) {
			// A relay that stops ends the requests of its informers itself.
			if request := (*informer.WatchError)(nil); r.stopping.Err() == nil || !errors.As(err, &request) {
				informer.Report(ctx, err)
			}
		},
	}
	if s.inf, err = informer.NewFrom(lw, options); err != nil {
		return nil, none, err
	}
	reached, err := s.reached(r.opts.Upstream)
	if err != nil {
		return nil, none, err
	}
	if s.feed, err = feed.New(s.inf, s.newObject); err != nil {
		return nil, none, err
	}
	return s, serving.Resource{
		GroupVersionResource: s.GroupVersionResource,
		Kind:                 s.Kind, Singular: s.Singular, ShortNames: s.ShortNames, Namespaced: s.Namespaced,
		Fields: s.Fields, Index: s.Index, Storage: s.feed, Absent: r.refusing(s), Reached: reached,
	}, nil
}

// refusing returns a function that returns the error for reads of a resource, or nil if they are served.
// A relay that is stopping refuses all reads: a new watch that ends at once would make its agent list.
func (r *Relay) refusing(s *served) func() error {
	return func() error {
		if r.stopping.Err() != nil {
			return apierrors.NewTooManyRequests("the relay stops", 1)
		}
		return s.absent()
	}
}

// settleTime is how long a relay that is stopping keeps its watches open, so that agents get all changes
// that it has.
const settleTime = time.Second

func (r *Relay) generic(opts *Options) (*genericapiserver.Config, error) {
	config := serving.NewGenericConfig()
	config.ShutdownDelayDuration = settleTime
	if err := opts.Serving.ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return nil, err
	}
	config.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	if opts.Authentication != nil {
		authentication := *opts.Authentication
		if authentication.TokenRequestTimeout == 0 {
			authentication.TokenRequestTimeout = 10 * time.Second // of all attempts together
		}
		if err := authentication.ApplyTo(&config.Authentication, config.SecureServing, nil); err != nil {
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
	config.AddReadyzChecks(healthz.NamedCheck("upstream", func(*http.Request) error { return r.Ready() }))
	return config, nil
}

// Run lists and watches the resources, and serves them until ctx ends. Then it waits for the requests
// under way, ends the watches over some seconds, and waits for all goroutines that it started, except
// those of k8s.io/apiserver that end by themselves. Run returns nil after the end of ctx, unless a store
// has failed. It returns an error before the end of ctx if the server fails, or if the stores of all
// resources have failed. A second Run returns an error that wraps informer.ErrAlreadyRun.
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
	context.AfterFunc(serve, r.stop)
	// The informers outlive the server, so that agents get the last changes.
	read, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReading()
	var finding, reading sync.WaitGroup
	begin := func(s *served) {
		reading.Go(func() {
			err := s.inf.Run(read)
			if err == nil {
				return
			}
			s.ended.Store(&err)
			s.feed.Interrupt()
			klog.FromContext(ctx).Error(err, "The relay serves a resource no more", "resource", s.name())
			if r.failed() {
				stopServing()
			}
		})
	}
	for _, s := range r.all() {
		begin(s)
	}
	finding.Go(func() {
		r.find(serve, begin)
		if r.failed() { // the last name may have been that of a resource whose informer had ended
			stopServing()
		}
	})
	errs := []error{r.server.Run(serve)}
	stopServing()
	finding.Wait()
	r.close()
	stopReading()
	reading.Wait()
	for _, s := range r.all() {
		if err := s.ended.Load(); err != nil {
			errs = append(errs, *err)
		}
	}
	return errors.Join(errs...)
}

func (r *Relay) all() []*served {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.served)
}

// failed reports whether the informers of all resources have ended, and no other resource may follow.
func (r *Relay) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unknown) == 0 && !slices.ContainsFunc(r.served, func(s *served) bool { return s.ended.Load() == nil })
}

func (r *Relay) close() {
	r.stop()
	for _, s := range r.all() {
		s.feed.Close()
	}
}

// Ready returns nil if agents can use the relay. At least one resource must have a state, and the API
// server must have sent more about it within Options.MaxStaleness than parts of lists. Until Ready has first returned
// nil, no other resource may still be waiting for its first state. A resource that fails, is silent or
// does not exist does not make the relay unready; Absent and Health show it. If the relay is not ready,
// Ready returns an error with the reason for each resource. Ready does not block. The server's path
// /readyz reports the same.
func (r *Relay) Ready() error {
	var reasons []error
	ready, begin := false, false
	for _, s := range r.all() {
		reason, begins := s.problem(r.opts.MaxStaleness, r.server.HasState(s.GroupVersionResource))
		reasons = append(reasons, reason)
		ready, begin = ready || reason == nil, begin || begins
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, reason := range r.unknown {
		reasons = append(reasons, notFound(name, reason))
		begin = begin || reason == nil
	}
	// A resource that is found later does not interrupt the others while it begins.
	if ready && (!begin || r.begun.Load()) {
		r.begun.Store(true)
		return nil
	}
	return errors.Join(reasons...)
}

// Absent returns, for each resource, the 404 or 503 that reads of the resource get, or nil. It does not
// show a 429, which asks the client to try again, such as while the relay stops or after an error of
// Transform. There is an error if the API server does not know the resource, if requests for its first
// state fail or get no answer, or if its store has failed. The keys are those of Health. For one of
// Options.Names that the API server has not described yet, the key is that name, and the error is a 503
// with the reason, even if reads get 404. Absent does not block.
func (r *Relay) Absent() map[string]error {
	all := map[string]error{}
	for _, s := range r.all() {
		all[s.name()] = s.absent()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, reason := range r.unknown {
		all[name] = notFound(name, reason)
	}
	return all
}

// Health returns the [informer.Health] of the informer of each resource, by names such as
// "leases.v1.coordination.k8s.io". Use it for the metrics of module metrics/prometheus and the page of
// package debug. It does not block.
func (r *Relay) Health() map[string]informer.MemberHealth {
	all := map[string]informer.MemberHealth{}
	for _, s := range r.all() {
		all[s.inf.Name()] = s.inf.Health()
	}
	return all
}
