package serving

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/emicklei/go-restful/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
)

// installer installs endpoints and their discovery. It replaces the generic server's InstallAPIGroup,
// which needs OpenAPI, and converts objects with a scheme, which cannot convert custom resources.
type installer struct {
	server     *genericapiserver.GenericAPIServer
	container  *restful.Container
	types      *types
	serializer runtime.NegotiatedSerializer
	minTimeout time.Duration
	addresses  discovery.Addresses
}

// newContainer returns a container that answers errors as the container of the generic server does.
// Resources need a separate container, because a group version in a container cannot be changed while
// the container is in use.
func newContainer(serializer runtime.NegotiatedSerializer) *restful.Container {
	c := restful.NewContainer()
	c.Router(restful.CurlyRouter{})
	c.DoNotRecover(true) // the generic server does
	c.ServiceErrorHandler(func(e restful.ServiceError, r *restful.Request, w *restful.Response) {
		err := apierrors.NewGenericServerResponse(e.Code, "", schema.GroupResource{}, "", e.Message, 0, false)
		responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{}, w, r.Request)
	})
	return c
}

// install installs the endpoints, which are given by version and name. It stops at the first error and
// returns it.
func (i *installer) install(endpoints map[schema.GroupVersion]map[string]rest.Storage) error {
	versions := map[string][]string{}
	for gv := range endpoints {
		versions[gv.Group] = append(versions[gv.Group], gv.Version)
	}
	for group, versions := range versions {
		// As a CustomResourceDefinition orders its versions, the first is the preferred one.
		slices.SortFunc(versions, func(a, b string) int {
			return cmp.Compare(0, version.CompareKubeAwareVersionStrings(a, b))
		})
		for _, v := range versions {
			gv := schema.GroupVersion{Group: group, Version: v}
			if err := i.installVersion(gv, endpoints[gv]); err != nil {
				return fmt.Errorf("relay: %s: %w", gv, err)
			}
		}
		i.installGroup(group, versions)
	}
	return nil
}

// installVersion installs the endpoints of one version, and adds the version to aggregated discovery.
func (i *installer) installVersion(gv schema.GroupVersion, storage map[string]rest.Storage) error {
	root, manager := genericapiserver.APIGroupPrefix, i.server.AggregatedDiscoveryGroupManager
	if gv.Group == "" {
		root, manager = genericapiserver.DefaultLegacyAPIPrefix, i.server.AggregatedLegacyDiscoveryGroupManager
	}
	scheme, convertor := i.types.scheme, i.types.convertor()
	group := endpoints.APIGroupVersion{
		Root:                       root,
		GroupVersion:               gv,
		Storage:                    storage,
		OptionsExternalVersion:     &schema.GroupVersion{Version: "v1"},
		Serializer:                 i.serializer,
		ParameterCodec:             runtime.NewParameterCodec(scheme),
		Typer:                      scheme,
		Creater:                    scheme, //nolint:misspell // the field's name
		Convertor:                  convertor,
		UnsafeConvertor:            convertor,
		ConvertabilityChecker:      scheme,
		Defaulter:                  scheme,
		Namer:                      meta.NewAccessor(),
		TypeConverter:              managedfields.NewDeducedTypeConverter(), // for writes, but demanded
		EquivalentResourceRegistry: i.server.EquivalentResourceRegistry,
		Authorizer:                 i.server.Authorizer,
		MinRequestTimeout:          i.minTimeout,
	}
	resources, _, err := group.InstallREST(i.container)
	if err != nil {
		return err
	}
	manager.AddGroupVersion(gv.Group, apidiscoveryv2.APIVersionDiscovery{
		Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		Version:   gv.Version,
		Resources: resources,
	})
	return nil
}

func (i *installer) installGroup(name string, versions []string) {
	if name == "" {
		manager := i.server.AggregatedLegacyDiscoveryGroupManager
		root := discovery.NewLegacyRootAPIHandler(i.addresses, i.server.Serializer, genericapiserver.DefaultLegacyAPIPrefix)
		wrapped := aggregated.WrapAggregatedDiscoveryToHandler(root, manager, manager)
		i.container.Add(wrapped.GenerateWebService(genericapiserver.DefaultLegacyAPIPrefix, metav1.APIVersions{}))
		return
	}
	group := metav1.APIGroup{Name: name}
	for _, v := range versions {
		gv := schema.GroupVersion{Group: name, Version: v}
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	i.server.DiscoveryGroupManager.AddGroup(group)
	i.container.Add(discovery.NewAPIGroupHandler(i.server.Serializer, group).WebService())
}
