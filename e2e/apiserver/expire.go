package apiserver

import (
	"context"
	"fmt"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
)

// Expire makes the server forget the history of the resource: when it returns,
// every resourceVersion from before the call answers 410 Gone, in a watch as
// well as in the continuation of a list. No object changes, and other
// resources keep the history that their watches need.
//
// Watches of the resource that are open have ended when Expire returns, without
// an error, as they do whenever a definition changes. The server takes a second
// over that.
func (s *Server) Expire(ctx context.Context, resource schema.GroupVersionResource) error {
	if err := s.expire(ctx, resource); err != nil {
		return fmt.Errorf("expiring history of %s: %w", resource.GroupResource(), err)
	}
	return nil
}

// History is kept twice: by etcd, and by the watch cache, which is filled from
// etcd but does not care when etcd is compacted. The server replaces a watch
// cache by a new one, without a past, when the definition of the resource
// changes.
func (s *Server) expire(ctx context.Context, resource schema.GroupVersionResource) error {
	client := s.dynamic.Resource(resource)
	list, err := client.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	past := metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
	old, err := client.Watch(ctx, past)
	if err != nil {
		return err
	}
	defer old.Stop()
	crd, err := s.touch(ctx, resource.GroupResource().String(), past.ResourceVersion)
	if err != nil {
		return err
	}
	revision, err := strconv.ParseInt(crd.ResourceVersion, 10, 64)
	if err != nil {
		return err
	}
	if _, err := s.etcd.Server.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: true}); err != nil {
		return err
	}
	// The end of a watch tells that the watch cache behind it is gone.
	for range old.ResultChan() {
	}
	if err := s.waitServed(ctx, resource); err != nil {
		return err
	}

	current, err := client.Watch(ctx, past)
	if err != nil {
		return err
	}
	defer current.Stop()
	event := <-current.ResultChan()
	if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) {
		return fmt.Errorf("watch at resourceVersion %s: want 410, got %s event: %w", past.ResourceVersion, event.Type, err)
	}
	return nil
}

// touch changes the definition to no effect and returns the result.
func (s *Server) touch(ctx context.Context, name, resourceVersion string) (crd *apiextensionsv1.CustomResourceDefinition, err error) {
	crds := s.crds.ApiextensionsV1().CustomResourceDefinitions()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if crd, err = crds.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, version := range crd.Spec.Versions {
			version.Schema.OpenAPIV3Schema.Description = "Expired at resourceVersion " + resourceVersion + "."
		}
		crd, err = crds.Update(ctx, crd, metav1.UpdateOptions{})
		return err
	})
	return crd, err
}
