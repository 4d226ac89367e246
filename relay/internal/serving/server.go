package serving

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Config describes what a [Server] serves, and to which clients.
type Config struct {
	// Generic must come from NewGenericConfig. The caller sets SecureServing, LoopbackClientConfig,
	// Authentication and Authorization, with the options of k8s.io/apiserver. Without an
	// authenticator or an authorizer, every client may read everything. The caller may change
	// MaxRequestsInFlight, RequestTimeout, MinRequestTimeout (watches end after one to two times
	// that), ShutdownDelayDuration, GoawayChance and the health checks. Generic is required, and New
	// changes it.
	Generic *genericapiserver.Config
	// Resources are the resources to serve. None may appear twice. Server.Add adds more.
	Resources []Resource
	// Unknown returns the error for reads of a resource that is not served, or nil, for 404, if the
	// resource does not exist. If Unknown is nil, all of these get 404.
	Unknown func(schema.GroupResource) error
	// KeepAnonymous keeps the HTTP/2 connections of system:anonymous open. By default, the generic
	// server ends them a second after each answer, as a defence against strangers.
	KeepAnonymous bool
	// AllowSecrets must be true if Secrets are among the resources.
	AllowSecrets bool
	// RefuseConsistentReads makes the server answer 400 to reads of the newest state, instead of the
	// relay's state, see the package comment. kubectl asks in this way. So do client-go's informers
	// if the API server has lost their version, and they never recover from the refusal.
	RefuseConsistentReads bool
}

// NewGenericConfig returns the configuration of a generic API server with the defaults of a relay.
// When the server stops, it ends open watches over up to 10 s, at 200 or more a second, so that
// clients do not all come back at once. There is no profiling, and no way to change the log level.
// Nothing counts the objects for API Priority and Fairness.
func NewGenericConfig() *genericapiserver.Config {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.ShutdownWatchTerminationGracePeriod = 10 * time.Second
	// A server that stops closes the connections of clients that ask again, with 429, so that they go
	// to another one. Otherwise a fleet keeps its connections, gets 503, and the end takes a minute.
	config.ShutdownSendRetryAfter = true
	config.EnableProfiling = false
	config.StorageObjectCountTracker = nil
	// The other default check reports whether the log is flushed, with a goroutine that never ends.
	config.HealthzChecks = []healthz.HealthChecker{healthz.PingHealthz}
	config.LivezChecks = []healthz.HealthChecker{healthz.PingHealthz}
	config.ReadyzChecks = []healthz.HealthChecker{healthz.PingHealthz}
	return config
}

// Server serves resources. New makes one. The caller must call either Run or Close once.
type Server struct {
	config   Config
	generic  *genericapiserver.GenericAPIServer
	prepared interface{ RunWithContext(context.Context) error }
	handler  atomic.Pointer[http.Handler]                              // of the resources and their discovery
	serves   atomic.Pointer[map[schema.GroupVersionResource]*endpoint] // the endpoints of handler

	mu        sync.Mutex // protects the rest
	resources []Resource
	endpoints map[schema.GroupVersionResource]*endpoint
	closed    bool
}

// New returns a server that already watches the storages. It does not block. It returns an error
// if the configuration cannot be used.
func New(config Config) (*Server, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Server{config: config, endpoints: map[schema.GroupVersionResource]*endpoint{}}
	generic := config.Generic
	generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(s.guard(handler), c)
	}
	var err error
	if s.generic, err = generic.Complete(nil).New("relay", genericapiserver.NewEmptyDelegate()); err != nil {
		return nil, err
	}
	s.generic.RegisterDestroyFunc(s.closeCaches)
	if err := s.Add(config.Resources...); err != nil {
		s.Close()
		return nil, err
	}
	s.prepared = s.generic.PrepareRun()
	return s, nil
}

func (c *Config) validate() error {
	switch {
	case c.Generic == nil:
		return errors.New("relay: Generic is required")
	case c.Generic.SecureServing == nil && c.Generic.ExternalAddress == "":
		return errors.New("relay: SecureServing is required, or ExternalAddress for a server that does not run")
	case !utilfeature.DefaultFeatureGate.Enabled(features.WatchList):
		return errors.New("relay: the feature gate WatchList is off, and the watch cache is filled by it")
	case len(c.Resources) == 0 && c.Unknown == nil:
		return errors.New("relay: there is no resource to serve")
	}
	return nil
}

// Add serves more resources, and begins to watch their storages. It does not interrupt the resources
// that are served already, and may be called while the server runs. If a resource cannot be served or
// is served already, or if the server is closed, Add returns an error and adds none of them.
func (s *Server) Add(more ...Resource) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("relay: the server is closed")
	}
	for i := range more {
		if err := more[i].validate(s.config.AllowSecrets); err != nil {
			return err
		}
	}
	resources := slices.Concat(s.resources, more)
	types, err := newTypes(resources)
	if err != nil {
		return err
	}
	endpoints := maps.Clone(s.endpoints)
	added := func() error {
		for i := range more {
			if err := s.addTo(endpoints, &more[i], types); err != nil {
				return err
			}
		}
		return s.install(endpoints, types)
	}
	if err := added(); err != nil {
		for name, e := range endpoints {
			if s.endpoints[name] == nil {
				e.cache.close()
			}
		}
		return err
	}
	s.resources, s.endpoints = resources, endpoints
	return nil
}

func (s *Server) addTo(endpoints map[schema.GroupVersionResource]*endpoint, r *Resource, types *types) error {
	if endpoints[r.GroupVersionResource] != nil {
		return fmt.Errorf("relay: resource %q appears twice", r.String())
	}
	if _, err := types.newObject(r.listKind()); err != nil {
		return err
	}
	fields, err := newFields(r.Fields)
	if err != nil {
		return err
	}
	cache, err := newWatchCache(r, types, fields)
	if err != nil {
		return fmt.Errorf("relay: resource %q: %w", r.String(), err)
	}
	endpoints[r.GroupVersionResource] = newEndpoint(r, types, fields, cache, s.config.RefuseConsistentReads)
	return nil
}

// install replaces all endpoints that are served by the given ones.
func (s *Server) install(endpoints map[schema.GroupVersionResource]*endpoint, types *types) error {
	all := map[schema.GroupVersion]map[string]rest.Storage{}
	for name, e := range endpoints {
		if all[name.GroupVersion()] == nil {
			all[name.GroupVersion()] = map[string]rest.Storage{}
		}
		all[name.GroupVersion()][name.Resource] = e
	}
	encodings, generic := types.serializer(), s.config.Generic
	i := &installer{
		server:     s.generic,
		container:  newContainer(s.generic.Serializer),
		types:      types,
		serializer: encodings,
		minTimeout: time.Duration(generic.MinRequestTimeout) * time.Second,
		addresses:  generic.DiscoveryAddresses,
	}
	if err := i.install(all); err != nil {
		return err
	}
	handler := withLongestWatch(withoutProtobuf(http.HandlerFunc(i.container.Dispatch), types.custom, encodings), 2*generic.MinRequestTimeout)
	s.handler.Store(&handler)
	s.serves.Store(&endpoints)
	for _, service := range i.container.RegisteredWebServices() {
		s.offer(service.RootPath())
	}
	return nil
}

// offer makes the generic server pass all requests below root to the handler.
func (s *Server) offer(root string) {
	mux, handler := s.generic.Handler.NonGoRestfulMux, func(w http.ResponseWriter, r *http.Request) { (*s.handler.Load()).ServeHTTP(w, r) }
	if !slices.Contains(mux.ListedPaths(), root) {
		mux.HandleFunc(root, handler)
		mux.UnlistedHandlePrefix(root+"/", http.HandlerFunc(handler))
	}
}

// guard answers requests for resources that are not served, and for which Config.Unknown returns an error. It also implements
// Config.KeepAnonymous.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.config.KeepAnonymous {
			w.Header().Del("Connection")
		}
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest && s.config.Unknown != nil {
			name := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
			if (*s.serves.Load())[name] == nil {
				if err := s.config.Unknown(name.GroupResource()); err != nil {
					responsewriters.ErrorNegotiated(err, s.generic.Serializer, schema.GroupVersion{}, w, r)
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// Run serves until ctx ends, and then blocks until the requests under way are done. It returns an
// error if the server cannot listen, and otherwise nil.
func (s *Server) Run(ctx context.Context) error { return s.prepared.RunWithContext(ctx) }

// Handler returns the handler of all requests, for a server without a listener.
func (s *Server) Handler() http.Handler { return s.generic.Handler }

// HasState returns nil if the server has a state of a resource. It returns an error if the server has
// none yet or waits for a new one, or does not serve the resource.
func (s *Server) HasState(name schema.GroupVersionResource) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.endpoints[name]; e != nil {
		return e.cache.ready()
	}
	return errors.New("it is not served")
}

// Close ends the watches of the storages. It is for a server whose Run is not called.
func (s *Server) Close() { s.generic.Destroy() }

func (s *Server) closeCaches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, e := range s.endpoints {
		e.cache.close()
	}
}
