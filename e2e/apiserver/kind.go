package apiserver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// Kind describes a namespaced custom resource. Its objects may have any fields.
type Kind struct {
	schema.GroupVersionKind

	// Status gives the kind a status subresource. Then only UpdateStatus changes the status of
	// its objects.
	Status bool
}

// Install creates a CustomResourceDefinition of the kind, under its regular plural, and blocks
// until the resource is served. It fails with AlreadyExists if the resource was installed
// before.
//
// A kind of Kubernetes itself, such as the Ingress of networking.k8s.io/v1, gets a stand-in:
// its objects are stored and watched like any others, but the server neither validates them
// nor fills in defaults, and serves them as JSON only. A typed client prefers protobuf for
// such a kind, so its configuration needs JSON as the ContentType.
func (s *Server) Install(ctx context.Context, kind Kind) (schema.GroupVersionResource, error) {
	return s.InstallDefinition(ctx, definition(kind))
}

// InstallDefinition is like Install for an existing definition, such as one that a program
// ships. It returns the resource in the version that is stored.
func (s *Server) InstallDefinition(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (schema.GroupVersionResource, error) {
	version, err := apihelpers.GetCRDStorageVersion(crd)
	resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: version, Resource: crd.Spec.Names.Plural}
	if err == nil {
		err = s.install(ctx, crd, resource)
	}
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("installing %s: %w", crd.Name, err)
	}
	return resource, nil
}

func (s *Server) install(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, resource schema.GroupVersionResource) error {
	crds := s.crds.ApiextensionsV1().CustomResourceDefinitions()
	crd, err := crds.Create(ctx, crd, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := s.waitEstablished(ctx, crd.Name, time.Time{}); err != nil {
		return err
	}

	// The server delays every create by two seconds while the definition is younger than that,
	// so that other API servers can catch up. There are none here, so make the definition look
	// older.
	aged := metav1.NewTime(time.Now().Add(-time.Minute))
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		crd, err := crds.Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		apihelpers.FindCRDCondition(crd, apiextensionsv1.Established).LastTransitionTime = aged
		_, err = crds.UpdateStatus(ctx, crd, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if err := s.waitEstablished(ctx, crd.Name, aged.Time); err != nil {
		return err
	}
	return s.waitServed(ctx, resource)
}

// waitEstablished waits until the handler of custom resources sees the definition as
// established. The handler reads from the lister. If by is not zero, the definition must have
// been established by that time.
func (s *Server) waitEstablished(ctx context.Context, name string, by time.Time) error {
	return wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) {
		crd, err := s.lister.Get(name)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil || !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			return false, err
		}
		since := apihelpers.FindCRDCondition(crd, apiextensionsv1.Established).LastTransitionTime
		return by.IsZero() || !since.After(by), nil
	})
}

// waitServed makes a first request, which sets up the watch cache of the resource, and waits
// until that cache is filled. Until then the server tells clients to retry after a second.
func (s *Server) waitServed(ctx context.Context, resource schema.GroupVersionResource) error {
	client := s.crds.Discovery().RESTClient()
	return wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := client.Get().
			AbsPath("apis", resource.Group, resource.Version, resource.Resource).
			Param("resourceVersion", "0"). // a request that the watch cache answers
			Param("fieldSelector", "metadata.name=-").
			MaxRetries(0).Do(ctx).Error()
		if apierrors.IsTooManyRequests(err) {
			return false, nil
		}
		return err == nil, err
	})
}

func definition(kind Kind) *apiextensionsv1.CustomResourceDefinition {
	resource, _ := meta.UnsafeGuessKindToResource(kind.GroupVersionKind)
	anyFields := true
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name:    resource.Version,
		Served:  true,
		Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type:                   "object",
				XPreserveUnknownFields: &anyFields,
			},
		},
	}
	if kind.Status {
		version.Subresources = &apiextensionsv1.CustomResourceSubresources{
			Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: resource.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group:    resource.Group,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: resource.Resource, Kind: kind.Kind},
			Scope:    apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version},
		},
	}
	if apihelpers.IsProtectedCommunityGroup(resource.Group) {
		// The API server rejects a definition in a group of Kubernetes itself without this
		// annotation.
		crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, a stand-in"}
	}
	return crd
}
