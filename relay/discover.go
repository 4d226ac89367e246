package relay

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Discover asks the API server about resources, and returns them in the order of names. A name has the form
// "pods", "leases.coordination.k8s.io" or "leases.v1.coordination.k8s.io". Without a version, Discover takes
// the version that the API server prefers. Each Resource has the names and the kind from the API server, and
// the field selectors that [Resource.SetKubernetesFields] sets. Discover blocks for a few requests, and
// cannot be cancelled. It returns an error, and no Resource, if the API server or the group of a resource
// does not answer, or if a resource does not exist or cannot be read and watched.
func Discover(upstream *rest.Config, names ...string) ([]Resource, error) {
	all, errs := lookup(context.Background(), upstream, names)
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("relay: %w", err)
		}
	}
	return all, nil
}

// lookup returns, for each name, the resource, or an error if there is none.
func lookup(ctx context.Context, upstream *rest.Config, names []string) ([]Resource, []error) {
	all, errs := make([]Resource, len(names)), make([]error, len(names))
	groups, incomplete, err := described(ctx, upstream)
	for i, name := range names {
		if errs[i] = err; err != nil {
			continue
		}
		found, err := discover(groups, name)
		switch {
		case meta.IsNoMatchError(err) && incomplete != nil: // it may be in a group that has not answered
			errs[i] = fmt.Errorf("resource %q: discovery: %w", name, incomplete)
		case err != nil:
			errs[i] = fmt.Errorf("resource %q: %w", name, err)
		default:
			all[i] = found
		}
	}
	return all, errs
}

// described asks the API server which resources it has. incomplete is the error of the groups that have not
// answered, or nil.
func described(ctx context.Context, upstream *rest.Config) (groups []*restmapper.APIGroupResources, incomplete, err error) {
	client, err := discovery.NewDiscoveryClientForConfig(upstream)
	if err != nil {
		return nil, nil, err
	}
	watched := &noting{DiscoveryInterfaceWithContext: discovery.ToDiscoveryInterfaceWithContext(client)}
	if groups, err = restmapper.GetAPIGroupResourcesWithContext(ctx, watched); err != nil {
		return nil, nil, fmt.Errorf("discovery: %w", err)
	}
	return groups, watched.err, nil
}

// noting is a discovery client that keeps the error that restmapper drops if some groups have answered.
type noting struct {
	discovery.DiscoveryInterfaceWithContext
	err error
}

func (n *noting) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, resources, err := n.DiscoveryInterfaceWithContext.ServerGroupsAndResourcesWithContext(ctx)
	n.err = err
	return groups, resources, err
}

// discover returns the resource of a name, in the version that the name has, otherwise in the preferred one. It returns an
// error unless the resource has the verbs get, list and watch.
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
	info, ok := describe(groups, full)
	for _, verb := range []string{"get", "list", "watch"} {
		if !ok || !slices.Contains(info.Verbs, verb) {
			return Resource{}, fmt.Errorf("the API server has no verb %s for %s", verb, full.String())
		}
	}
	r := Resource{
		GroupVersionResource: full, Kind: info.Kind, Singular: info.SingularName,
		ShortNames: info.ShortNames, Namespaced: info.Namespaced,
	}
	r.SetKubernetesFields()
	return r, nil
}

func describe(groups []*restmapper.APIGroupResources, resource schema.GroupVersionResource) (metav1.APIResource, bool) {
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
