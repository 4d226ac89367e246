package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
)

// Expire makes the server forget the history of the resource. When it returns, every
// resourceVersion from before the call is answered with 410 Gone, both in a watch and in the
// continuation of a list. No object changes, and other resources keep the history that their
// watches need.
//
// Open watches of the resource end before Expire returns. They end without an error, as they
// always do when a definition changes. The server takes about a second for this.
func (s *Server) Expire(ctx context.Context, resource schema.GroupVersionResource) error {
	if err := s.expire(ctx, resource); err != nil {
		return fmt.Errorf("expiring history of %s: %w", resource.GroupResource(), err)
	}
	return nil
}

// expire does the work of Expire. The history is kept twice: by etcd, and by the watch cache.
// The watch cache is filled from etcd but ignores compactions of etcd. The server replaces a
// watch cache by a new and empty one when the definition of the resource changes.
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
	_, err = s.etcd.Server.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: true})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) { // another call may have been first
		return err
	}
	// A watch that ends shows that the watch cache behind it is gone.
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

// touch changes the definition in a way that has no effect and returns the changed definition.
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
