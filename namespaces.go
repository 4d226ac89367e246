package informer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer/internal/source"
	"github.com/customcacheinformer/informer/internal/stopwatch"
)

// NewInNamespaces returns one informer over one resource in several namespaces, for programs
// that may not read all of them. client returns the client for a namespace, and is called once
// for each, before NewInNamespaces returns. It may be a method of a typed client, of the dynamic
// client or of the metadata client:
//
//	informer.NewInNamespaces(clientset.CoreV1().Pods, namespaces, informer.Options[*corev1.Pod]{})
//	informer.NewInNamespaces(dynamic.Resource(gvr).Namespace, namespaces, informer.Options[*unstructured.Unstructured]{})
//
// The informer has one store, and each watcher one registration. It lists and watches each
// namespace by itself, so all that [CustomCacheInformer] promises about requests holds for
// each. It has synced when it has listed all of them. A namespace that cannot be read keeps its
// last state, and delays no other. The events of one namespace come in order; there is no order
// between namespaces. Transform is called from a goroutine of each namespace.
//
// Over a Durable, a restart lists only namespaces that are new or were not complete. The objects
// of namespaces that are no longer wanted are told as deleted, and removed.
//
// NewInNamespaces returns an error if there is no namespace, if one is given twice or is no
// name of a namespace, if client returns nil, and in the cases in which [NewFrom] does.
func NewInNamespaces[T Object, L runtime.Object, C interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}](client func(namespace string) C, namespaces []string, opts Options[T]) (*CustomCacheInformer[T], error) {
	if client == nil {
		return nil, errors.New("informer: the function for the clients (client) is nil")
	}
	if len(namespaces) == 0 {
		return nil, errors.New("informer: there is no namespace; New reads all of them")
	}
	var resources []resource
	for i, namespace := range namespaces {
		if slices.Contains(namespaces[:i], namespace) {
			return nil, fmt.Errorf("informer: the namespace %q is given twice", namespace)
		}
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			return nil, fmt.Errorf("informer: %q is no name of a namespace: %s", namespace, strings.Join(problems, ", "))
		}
		resources = append(resources, resource{namespace, ListWatch(client(namespace))})
	}
	return newFrom(resources, opts)
}

// resource lists and watches the objects of one namespace, or all that an informer has.
type resource struct {
	namespace string // "" if the informer reads from one source
	lw        cache.ListerWatcher
}

// resourceSource is the source of a resource.
type resourceSource struct {
	namespace string
	*source.Source
}

// NamespaceHealth says how an informer of [NewInNamespaces] is doing with one namespace. Its
// fields mean the same as those of Health.
type NamespaceHealth struct {
	Namespace       string    `json:"namespace"`
	Synced          bool      `json:"synced"` // the namespace's first list is in the store
	Watching        bool      `json:"watching"`
	LastList        time.Time `json:"lastList,omitzero"`
	LastContact     time.Time `json:"lastContact,omitzero"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	SourceError     error     `json:"-"`
	SourceFailures  int       `json:"sourceFailures,omitempty"`
}

// sourceHealth sets the fields of h that are about the sources. With several namespaces, these
// show the worst of them.
func (i *CustomCacheInformer[T]) sourceHealth(h *Health) {
	for n, s := range i.sources {
		status, from := s.Status(), i.inlet.intakes[n]
		version, _ := i.inlet.resourceVersion(from)
		one := NamespaceHealth{
			Namespace: s.namespace, Synced: from.listed.Load(), Watching: status.Watching, LastList: status.LastList,
			LastContact: status.LastContact, ResourceVersion: version,
			SourceError: watchError(i.opts.Name, s.namespace, status.Failure), SourceFailures: status.Failures,
		}
		if s.namespace != "" {
			h.Namespaces = append(h.Namespaces, one)
		}
		h.Watching = one.Watching && (h.Watching || n == 0)
		if n == 0 || one.LastList.Before(h.LastList) {
			h.LastList = one.LastList
		}
		if n == 0 || one.LastContact.Before(h.LastContact) {
			h.LastContact = one.LastContact
		}
		if one.SourceFailures > h.SourceFailures {
			h.SourceError, h.SourceFailures = one.SourceError, one.SourceFailures
		}
	}
	h.ResourceVersion, _ = i.inlet.resourceVersion(nil)
}

// lateLists names the lists that the informer waits for.
func (i *CustomCacheInformer[T]) lateLists() string {
	var namespaces []string
	for _, from := range i.inlet.unlisted() {
		namespaces = append(namespaces, from.namespace)
	}
	if len(i.inlet.intakes) == 1 || len(namespaces) == 0 {
		return "the first list"
	}
	return "the first list of " + strings.Join(namespaces, ", ")
}

// WaitForResourceVersionIn is like [CustomCacheInformer.WaitForResourceVersion], but waits for
// one namespace of an informer that [NewInNamespaces] has made. Use it after a write of your
// own: another namespace in which nothing happens may be behind for a minute. It returns an
// error if the informer does not read the namespace. An informer that reads from one source
// reads every namespace.
func (i *CustomCacheInformer[T]) WaitForResourceVersionIn(ctx context.Context, namespace, rv string) error {
	for _, from := range i.inlet.intakes {
		if from.namespace == namespace || from.namespace == "" {
			return i.waitForVersion(ctx, from, rv)
		}
	}
	return fmt.Errorf("informer %s: WaitForResourceVersionIn: the informer does not read the namespace %q", i.opts.Name, namespace)
}

// newSources returns the sources of the resources, which report in the words of this package.
func newSources[T Object](resources []resource, clock stopwatch.Stopwatch, opts Options[T], watchFailed cache.WatchErrorHandlerWithContext) []resourceSource {
	var sources []resourceSource
	for _, r := range resources {
		sources = append(sources, resourceSource{r.namespace, newSource(r, clock, opts, watchFailed)})
	}
	return sources
}

// MarshalJSON encodes the figures with names in camel case, and the error as text.
func (n NamespaceHealth) MarshalJSON() ([]byte, error) {
	type fields NamespaceHealth // has the tags, but not this method
	encoded := struct {
		fields
		SourceError string `json:"sourceError,omitempty"`
	}{fields: fields(n)}
	if n.SourceError != nil {
		encoded.SourceError = n.SourceError.Error()
	}
	return json.Marshal(encoded)
}
