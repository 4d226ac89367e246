package store

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/customcacheinformer/informer/internal/object"
)

// ClusterUID returns the UID of the namespace kube-system, for [Identity].Cluster. A cluster keeps
// this UID when the address of its API server changes. Another cluster has a different UID, unless
// it began as a copy of this one, for example from a backup of etcd. client is a client for
// namespaces, such as that of a clientset:
//
//	cluster, err := store.ClusterUID(ctx, clientset.CoreV1().Namespaces())
//
// ClusterUID blocks for one GET of client, until ctx ends at the latest. It does not try again.
// The program needs the verb get on that namespace, by a ClusterRole with the resource namespaces
// and resourceNames: [kube-system].
//
// ClusterUID returns an error if client is nil, if the GET fails, or if the namespace has no UID,
// as in a fake clientset. If the GET fails, the error wraps its error. If the GET is forbidden or
// finds nothing, the error explains what to do.
func ClusterUID[Namespace metav1.Object](ctx context.Context, client interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (Namespace, error)
}) (string, error) {
	if object.IsNil(client) {
		return "", errors.New("store: ClusterUID: the client is nil")
	}
	const advice = "or choose a name of the cluster yourself for Identity.Cluster"
	namespace, err := client.Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("store: ClusterUID: %w: allow get on namespaces with resourceNames: [%s] in a ClusterRole, %s", err, metav1.NamespaceSystem, advice)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("store: ClusterUID: %w: create the namespace, %s", err, advice)
	case err != nil:
		return "", fmt.Errorf("store: ClusterUID: %w", err)
	case namespace.GetUID() == "":
		return "", fmt.Errorf("store: ClusterUID: the namespace %s has no UID: give it one, as this is a fake, %s", metav1.NamespaceSystem, advice)
	}
	return string(namespace.GetUID()), nil
}
