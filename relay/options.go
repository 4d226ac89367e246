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

// DefaultMaxStaleness is the default of Options.MaxStaleness. The API server sends a bookmark on a quiet
// watch about once a minute.
const DefaultMaxStaleness = 2 * time.Minute

// Options configures a Relay.
type Options struct {
	// Upstream is the client configuration for the API server, or for another relay. The relay needs the
	// rights to get, list and watch the resources there. Required.
	Upstream *rest.Config
	// Resources are the resources to serve. Discover finds them by their names. At least one of Resources
	// and Names must not be empty.
	Resources []Resource
	// Names are the names of further resources, in the form that Discover takes. Run asks the API server
	// for them repeatedly, with pauses of up to 30 s, and serves each once the API server has described
	// it. Until then, the relay answers reads of the resource with 404 if the API server does not know
	// it, and otherwise with 503 and the reason. So a relay can start while the API server is away, and
	// before a CustomResourceDefinition exists.
	Names []string
	// Prepare is called for each resource of Names once it is found, before it is served. It may set
	// Store, Transform, Fields and Index. If it returns an error, or if the relay cannot serve the
	// resource that it has prepared, it is called again later, with the resource as it was found. So it
	// may be called after it has opened a Store. It may block; meanwhile the other resources of Names
	// wait. ctx ends when the relay stops. Defaults to doing nothing.
	Prepare func(ctx context.Context, resource *Resource) error
	// AllowSecrets must be true if Secrets are among the resources.
	AllowSecrets bool

	// Serving sets the address on which the relay listens, and its certificate. Required.
	Serving *genericserver.SecureServingOptionsWithLoopback
	// Authentication decides who a client is, by client certificates and by TokenReviews at the API
	// server. If it is nil, all clients are system:anonymous. A failed review is tried again for
	// TokenRequestTimeout, 10 s by default, and then the client gets 401. With Authentication, the generic
	// server ends an HTTP/2 connection of system:anonymous a second after an answer. So an anonymous client
	// that reads slowly may get only a part of a list. New asks the API server for the certificate authority
	// of clients. It fails if there is no answer, unless SkipInClusterLookup or
	// TolerateInClusterLookupFailure is true.
	Authentication *genericserver.DelegatingAuthenticationOptions
	// Authorization asks the API server, by SubjectAccessReviews, whether a client may read. If it is nil,
	// every client that reaches the relay may read everything that it serves. A permission that is revoked
	// stays in effect for new requests for up to AllowCacheTTL, because answers are cached. Watches that
	// are open at the end of this time may continue for up to twice MinWatchTimeout.
	Authorization *genericserver.DelegatingAuthorizationOptions

	// MaxStaleness is how long the API server may send nothing, only errors or only parts of lists about a
	// resource before the resource counts as not ready, see [Relay.Ready]. It must not be negative. Defaults
	// to DefaultMaxStaleness.
	MaxStaleness time.Duration
	// MinWatchTimeout is the minimum duration of a watch for which the client sets no timeout. Such a
	// watch lasts up to twice as long, and no watch lasts longer than that. It must be a whole number of
	// seconds, from 0 to 365 days. Defaults to 30 minutes.
	MinWatchTimeout time.Duration
	// MaxRequestsInFlight is how many requests other than watches may be under way. Further requests get
	// 429. It must be from 0 to 1,048,576. Defaults to 400.
	MaxRequestsInFlight int
	// RefuseConsistentReads makes the relay answer 400 to reads with resourceVersion="". By default these
	// reads get the state of the relay. kubectl lists in this way, so it does not work with such a relay.
	// Informers work with it: they can start, and continue after a 410. But if the API server was
	// restored from a backup, an informer that has lost its version lists only in this way. It then keeps
	// its old state until it is started again.
	RefuseConsistentReads bool

	// Observer is used as informer.Options.Observer of all informers of the relay, for metrics. Defaults to
	// none.
	Observer *informer.Observer
}

// Resource is a resource that a relay serves.
type Resource struct {
	schema.GroupVersionResource

	// Kind is the kind of the objects, such as "Pod". Required.
	Kind string
	// Singular is the singular name of the resource, such as "pod". Defaults to Kind in lower case.
	Singular string
	// ShortNames are short names for kubectl, such as "po".
	ShortNames []string
	// Namespaced is true if the objects are in namespaces.
	Namespaced bool

	// Fields are the field selectors that clients may use in addition to metadata.name and
	// metadata.namespace. Each is the path of a value in the object, such as "spec.nodeName". If an object
	// does not have the value, it is "".
	Fields []string
	// Index is one of Fields, or "". With an Index, a change of an object wakes only the watches that
	// select its value of this field, and watches that do not select by the field.
	Index string

	// Store keeps the objects beyond the end of the process, so that the next start makes no list. The
	// caller must close it after Run. If it is nil, the default, the objects are only in memory.
	Store informer.Durable
	// Transform returns the object to store and serve in place of the given one, for example without parts
	// that no agent needs. The object has a Go type of client-go's scheme if that has Kind, and otherwise it
	// is an *unstructured.Unstructured. The result must have the same type. It may be the same object, changed
	// in place. Transform must not change the name, the namespace, the UID or the resourceVersion. After an
	// error, the relay does not have the state of any version: until Transform works for the next change of
	// the object, the object is deleted, or the informer has listed again, reads of the resource get 429. So
	// Transform should not return errors. It is optional.
	Transform func(informer.AnyObject) (informer.AnyObject, error)
}

// SetKubernetesFields sets Fields and Index to the field selectors that kube-apiserver supports for a
// built-in resource, and to none for other resources. Two are missing, because they are not paths in the
// object: source of Events and status.successful of Jobs. Discover calls it for each resource.
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

// maxRequests is the largest MaxRequestsInFlight. The server reserves memory for MaxRequestsInFlight
// requests.
const maxRequests = 1 << 20

// maxWatchTimeout is the largest MinWatchTimeout. Twice as many seconds fit into 32 bits.
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
