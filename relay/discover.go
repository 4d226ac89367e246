package relay

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Discover asks the API server about resources, and returns them in the order of the names. Each has
// the names and the kind that the API server tells, and the field selectors of KubernetesFields. A
// name is such as "pods", "leases.coordination.k8s.io" or "leases.v1.coordination.k8s.io"; without a
// version, it is the one that the API server prefers. Discover blocks for a few requests. It returns
// an error if a resource does not exist, or cannot be read and watched.
func Discover(upstream *rest.Config, names ...string) ([]Resource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(upstream)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return nil, fmt.Errorf("relay: discovery: %w", err)
	}
	var all []Resource
	for _, name := range names {
		found, err := discover(groups, name)
		if err != nil {
			return nil, fmt.Errorf("relay: resource %q: %w", name, err)
		}
		all = append(all, found)
	}
	return all, nil
}

// discover returns the resource with a name.
func discover(groups []*restmapper.APIGroupResources, name string) (Resource, error) {
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	withVersion, group := schema.ParseResourceArg(name)
	full, err := mapper.ResourceFor(group.WithVersion(""))
	if withVersion != nil {
		// leases.v1.coordination.k8s.io may also be a resource of the group v1.coordination.k8s.io.
		if exact, exactErr := mapper.ResourceFor(*withVersion); exactErr == nil {
			full, err = exact, nil
		}
	}
	if err != nil {
		return Resource{}, err
	}
	info, ok := described(groups, full)
	for _, verb := range []string{"get", "list", "watch"} {
		if !ok || !slices.Contains(info.Verbs, verb) {
			return Resource{}, fmt.Errorf("the API server has no verb %s for %s", verb, full.String())
		}
	}
	r := Resource{
		GroupVersionResource: full, Kind: info.Kind, Singular: info.SingularName,
		ShortNames: info.ShortNames, Namespaced: info.Namespaced,
	}
	r.Fields, r.Index = KubernetesFields(full.GroupResource())
	return r, nil
}

// described returns how the API server describes a resource.
func described(groups []*restmapper.APIGroupResources, resource schema.GroupVersionResource) (metav1.APIResource, bool) {
	for _, group := range groups {
		if group.Group.Name != resource.Group {
			continue
		}
		for _, r := range group.VersionedResources[resource.Version] {
			if r.Name == resource.Resource {
				return r, true
			}
		}
	}
	return metav1.APIResource{}, false
}
