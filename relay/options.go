package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericserver "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/relay/internal/serving"
)

// DefaultMaxStaleness is the MaxStaleness of Options that do not set one. A quiet watch brings a
// bookmark about once a minute.
const DefaultMaxStaleness = 2 * time.Minute

// Options configures a Relay.
type Options struct {
	// Upstream is the API server, or another relay. The relay may get, list and watch the resources
	// there. Required.
	Upstream *rest.Config
	// Resources are served. Discover finds them by their names. At least one is required, or one of Names.
	Resources []Resource
	// Names are the names of further resources, as Discover takes them. Run asks the API server for them,
	// again and again with pauses of up to 30 s, and serves each from the moment when the API server has
	// described it. Until then, reads of the resource are answered with 404 if the API server does not
	// know it, and otherwise with 503 and the reason. So a relay can start while the API server is away,
	// and before a definition is there.
	Names []string
	// Prepare is called for each of Names that was found, before it is served. It may set the Store, the
	// Transform, Fields and Index. After an error it is called again, for the resource without its
	// changes. It may block until ctx ends. Defaults to doing nothing.
	Prepare func(ctx context.Context, resource *Resource) error
	// AllowSecrets must be true if Secrets are among the resources.
	AllowSecrets bool

	// Serving is where the relay listens, and with which certificate. It is required.
	Serving *genericserver.SecureServingOptionsWithLoopback
	// Authentication decides who a client is: by client certificates, and by TokenReviews at the API
	// server. Without it, all clients are system:anonymous. A review that fails is tried again for
	// TokenRequestTimeout, 10 s by default, and then the client gets 401. With it, the generic server ends
	// an HTTP/2 connection of system:anonymous a second after an answer, so that slow readers get no list.
	// New asks for the certificate authority, and fails without an answer, unless SkipInClusterLookup or
	// TolerateInClusterLookupFailure is true.
	Authentication *genericserver.DelegatingAuthenticationOptions
	// Authorization asks the API server, by SubjectAccessReviews, whether a client may read. A
	// permission that is revoked ends at the latest when the answer of the review has left the cache
	// (AllowCacheTTL), and the watch that is open then has ended (twice MinWatchTimeout). Without it,
	// everybody who reaches the relay may read everything that it serves.
	Authorization *genericserver.DelegatingAuthorizationOptions

	// MaxStaleness is how long the API server may send nothing but errors about a resource before the
	// resource does not count for Ready. Defaults to DefaultMaxStaleness.
	MaxStaleness time.Duration
	// MinWatchTimeout is how long a watch lasts for which the client asks no timeout, up to twice
	// as long. No watch lasts longer than twice this time. In whole seconds. Defaults to 30 minutes.
	MinWatchTimeout time.Duration
	// MaxRequestsInFlight is how many requests other than watches may be under way. More are answered
	// with 429. Defaults to 400. At most 1,048,576.
	MaxRequestsInFlight int
	// RefuseConsistentReads has reads with resourceVersion="" answered with 400. By default they are
	// answered with the state of the relay. kubectl lists in this way and does not work then. Informers
	// begin, and continue after a 410. But when the API server was restored from a backup, those that have
	// lost versions ask in this way alone, and keep their state until they are started again.
	RefuseConsistentReads bool

	// Observer is given to the informers, for metrics. Defaults to none.
	Observer *informer.Observer
}

// Resource is a resource that a relay serves.
type Resource struct {
	schema.GroupVersionResource

	// Kind is the kind of the objects, such as "Pod". Required.
	Kind string
	// Singular is the name of one object, such as "pod". Defaults to Kind in lower case.
	Singular string
	// ShortNames are other names in kubectl, such as "po".
	ShortNames []string
	// Namespaced is true if the objects are in namespaces.
	Namespaced bool

	// Fields are the field selectors that are served besides metadata.name and metadata.namespace.
	// Each is the path of a value in the object, such as "spec.nodeName".
	Fields []string
	// Index is one of Fields, or "". A change of an object wakes only the watchers that select the
	// object's value of this field, and those that do not select by the field.
	Index string

	// Store keeps the objects and outlives the process, so that the next start makes no list. The
	// caller closes it after Run. Nil, the default, keeps the objects in memory.
	Store informer.Durable
	// Transform changes each object before it is stored and served, such as to remove parts that no
	// agent needs. It must not change the name, the namespace, the UID or the resourceVersion.
	Transform func(informer.AnyObject) (informer.AnyObject, error)
}

// SetKubernetesFields sets Fields and Index to the field selectors that kube-apiserver has for a
// built-in resource, and to none for other resources. Discover has called it.
func (r *Resource) SetKubernetesFields() {
	r.Fields, r.Index = serving.WellKnownFields(r.GroupResource())
}

// name returns the name of the informer, such as "leases.v1.coordination.k8s.io".
func (r *Resource) name() string {
	return strings.TrimSuffix(strings.Join([]string{r.Resource, r.Version, r.Group}, "."), ".")
}

func (o *Options) check() error {
	switch {
	case o.Upstream == nil:
		return errors.New("Options.Upstream is nil")
	case len(o.Resources)+len(o.Names) == 0:
		return errors.New("there is no resource in Options.Resources or Options.Names")
	case o.Serving == nil:
		return errors.New("Options.Serving is nil")
	case o.MaxStaleness < 0:
		return fmt.Errorf("Options.MaxStaleness is %v, less than 0", o.MaxStaleness)
	case o.MinWatchTimeout < 0 || o.MinWatchTimeout%time.Second != 0:
		return fmt.Errorf("Options.MinWatchTimeout is %v, not a whole number of seconds from 0", o.MinWatchTimeout)
	case o.MinWatchTimeout > maxWatchTimeout:
		return fmt.Errorf("Options.MinWatchTimeout is %v, more than %v", o.MinWatchTimeout, maxWatchTimeout)
	case o.MaxRequestsInFlight < 0:
		return fmt.Errorf("Options.MaxRequestsInFlight is %d, less than 0", o.MaxRequestsInFlight)
	case o.MaxRequestsInFlight > maxRequests:
		return fmt.Errorf("Options.MaxRequestsInFlight is %d, more than %d", o.MaxRequestsInFlight, maxRequests)
	}
	seen := map[string]bool{}
	for i := range o.Resources {
		name := o.Resources[i].name()
		if seen[name] {
			return fmt.Errorf("Options.Resources has %s twice", name)
		}
		seen[name] = true
	}
	for _, name := range o.Names {
		switch {
		case name == "":
			return errors.New("Options.Names has an empty name")
		case (name == "secrets" || name == "secret") && !o.AllowSecrets:
			return errors.New("Secrets are not served unless Options.AllowSecrets is true")
		case seen[name]:
			return fmt.Errorf("Options.Names has %s twice", name)
		}
		seen[name] = true
	}
	var problems []string
	for _, err := range validate(o) {
		problems = append(problems, err.Error())
	}
	if problems != nil {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// maxRequests is the largest MaxRequestsInFlight. The server reserves memory for that many.
const maxRequests = 1 << 20

// maxWatchTimeout can be doubled and held in an int of 32 bits, in seconds.
const maxWatchTimeout = 365 * 24 * time.Hour

func validate(o *Options) []error {
	all := o.Serving.Validate()
	if o.Authentication != nil {
		all = append(all, o.Authentication.Validate()...)
	}
	if o.Authorization != nil {
		all = append(all, o.Authorization.Validate()...)
	}
	return all
}
