package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Config says what a [Server] serves, and to whom.
type Config struct {
	// Generic is of NewGenericConfig. The caller sets SecureServing, LoopbackClientConfig,
	// Authentication and Authorization, with the options of k8s.io/apiserver. Without an
	// authenticator or an authorizer, everybody may read everything. The caller may change
	// MaxRequestsInFlight, RequestTimeout, MinRequestTimeout (watches end after one to two times
	// that), ShutdownDelayDuration, GoawayChance and the health checks. Required; New changes it.
	Generic *genericapiserver.Config
	// Resources are served. None may appear twice.
	Resources []Resource
	// AllowSecrets must be true if Secrets are among the resources.
	AllowSecrets bool
	// RefuseConsistentReads has reads that ask for the newest state answered with 400 instead of
	// the relay's state, see the package comment. kubectl asks in this way. So do client-go's
	// informers whose version an API server has lost, and they do not overcome the refusal.
	RefuseConsistentReads bool
}

// NewGenericConfig returns the defaults of a relay, which are those of a generic API server with
// these differences. Watches that are open when the server stops are ended over up to 10 s, 200 or
// more a second, so that clients do not come back all at once. There is no profiling, and no way to
// change the level of the log. Nothing counts the objects for API Priority and Fairness.
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
	// The other default check tells whether the log is flushed, with a goroutine that never ends.
	config.HealthzChecks = []healthz.HealthChecker{healthz.PingHealthz}
	config.LivezChecks = []healthz.HealthChecker{healthz.PingHealthz}
	config.ReadyzChecks = []healthz.HealthChecker{healthz.PingHealthz}
	return config
}

// Server serves resources. It is made by New, and either Run or Close must be called once.
type Server struct {
	generic  *genericapiserver.GenericAPIServer
	prepared interface{ RunWithContext(context.Context) error }
	caches   []namedCache
}

type namedCache struct {
	name string
	*watchCache
}

// New returns a server, and begins to watch the storages. It does not block. It returns an error if
// the configuration cannot be used.
func New(config Config) (*Server, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	types, err := newTypes(config.Resources)
	if err != nil {
		return nil, err
	}
	s := &Server{}
	encodings := types.serializer()
	generic := config.Generic
	generic.AddReadyzChecks(healthz.NamedCheck("watch-caches", func(*http.Request) error { return s.Ready() }))
	generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		handler = withLongestWatch(withoutProtobuf(handler, types.custom, encodings), 2*c.MinRequestTimeout)
		return genericapiserver.DefaultBuildHandlerChain(handler, c)
	}
	s.generic, err = generic.Complete(nil).New("relay", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	s.generic.RegisterDestroyFunc(s.closeCaches)
	endpoints, err := s.endpoints(config, types)
	if err == nil {
		err = (&installer{
			server:     s.generic,
			types:      types,
			serializer: encodings,
			minTimeout: time.Duration(generic.MinRequestTimeout) * time.Second,
			addresses:  generic.DiscoveryAddresses,
		}).install(endpoints)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.prepared = s.generic.PrepareRun()
	return s, nil
}

// validate returns an error if the configuration cannot be used.
func (c *Config) validate() error {
	switch {
	case c.Generic == nil:
		return errors.New("relay: Generic is required")
	case c.Generic.SecureServing == nil && c.Generic.ExternalAddress == "":
		return errors.New("relay: SecureServing is required, or ExternalAddress for a server that does not run")
	case !utilfeature.DefaultFeatureGate.Enabled(features.WatchList):
		return errors.New("relay: the feature gate WatchList is off, and the watch cache is filled by it")
	case len(c.Resources) == 0:
		return errors.New("relay: there is no resource to serve")
	}
	seen := map[schema.GroupVersionResource]bool{}
	for i := range c.Resources {
		r := &c.Resources[i]
		if err := r.validate(c.AllowSecrets); err != nil {
			return err
		}
		if seen[r.GroupVersionResource] {
			return fmt.Errorf("relay: resource %q appears twice", r.String())
		}
		seen[r.GroupVersionResource] = true
	}
	return nil
}

// endpoints starts the cache of each resource, and returns the endpoints by version and name.
func (s *Server) endpoints(config Config, types *types) (map[schema.GroupVersion]map[string]rest.Storage, error) {
	all := map[schema.GroupVersion]map[string]rest.Storage{}
	for i := range config.Resources {
		r := &config.Resources[i]
		if _, err := types.newObject(r.listKind()); err != nil {
			return nil, err
		}
		fields, err := newFields(r.Fields)
		if err != nil {
			return nil, err
		}
		cache, err := newWatchCache(r, types, fields)
		if err != nil {
			return nil, fmt.Errorf("relay: resource %q: %w", r.String(), err)
		}
		s.caches = append(s.caches, namedCache{r.GroupResource().String(), cache})
		if all[r.GroupVersion()] == nil {
			all[r.GroupVersion()] = map[string]rest.Storage{}
		}
		all[r.GroupVersion()][r.Resource] = newEndpoint(r, types, fields, cache, config.RefuseConsistentReads)
	}
	return all, nil
}

// Run serves until ctx ends, and then until the requests under way have ended. It returns an error
// if the server cannot listen.
func (s *Server) Run(ctx context.Context) error { return s.prepared.RunWithContext(ctx) }

// Handler returns all of the server except its listener.
func (s *Server) Handler() http.Handler { return s.generic.Handler }

// Ready returns an error that names the resources that have no state yet, or wait for another one.
// It returns nil if there are none.
func (s *Server) Ready() error {
	var all []error
	for _, cache := range s.caches {
		if err := cache.ready(); err != nil {
			all = append(all, fmt.Errorf("%s: %w", cache.name, err))
		}
	}
	return errors.Join(all...)
}

// Close ends the watches of the storages, of a server that does not run.
func (s *Server) Close() { s.generic.Destroy() }

func (s *Server) closeCaches() {
	for _, cache := range s.caches {
		cache.close()
	}
}
