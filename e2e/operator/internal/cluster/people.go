package cluster

import (
	"context"
	"fmt"

	netv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/examples/operator/website"
	"github.com/customcacheinformer/informer/internal/lab"
)

// CreateSites creates Websites, each at a host of its own. It creates several at a time.
func (c *Cluster) CreateSites(ctx context.Context, keys []types.NamespacedName) error {
	return Each(keys, func(key types.NamespacedName) error {
		_, err := c.Sites.Websites(key.Namespace).Create(ctx, &website.Website{
			ObjectMeta: metav1.ObjectMeta{Name: key.Name},
			Spec:       website.Spec{Host: Host(key), Service: key.Name, Port: 80},
		}, metav1.CreateOptions{})
		return err
	})
}

// Host returns the host that a Website is created with.
func Host(key types.NamespacedName) string { return key.Name + ".example.com" }

// MoveSites changes the hosts of Websites, several at a time.
func (c *Cluster) MoveSites(ctx context.Context, keys []types.NamespacedName, host func(types.NamespacedName) string) error {
	return Each(keys, func(key types.NamespacedName) error {
		return c.Patch(ctx, website.Resource, key, fmt.Sprintf(`{"spec":{"host":%q}}`, host(key)))
	})
}

// Settled waits until an operator has finished its work for a Website at the given host, and
// returns both objects as they are then. The Ingress of an expired Website is nil, because it
// is deleted.
func (c *Cluster) Settled(ctx context.Context, key types.NamespacedName, host string, phase website.Phase) (site *website.Website, ingress *netv1.Ingress, err error) {
	err = c.Websites.WaitFor(ctx, key, func(obj *website.Website, exists bool) bool {
		site = obj
		return exists && obj.Spec.Host == host && obj.Status.ObservedGeneration == obj.Generation && obj.Status.Phase == phase
	})
	if err != nil {
		return nil, nil, fmt.Errorf("the Website %s is %+v, wanted %s at %s: %w", key, site, phase, host, err)
	}
	err = c.Ingresses.WaitFor(ctx, key, func(obj *netv1.Ingress, exists bool) bool {
		ingress = obj
		if phase == website.Expired {
			return !exists
		}
		return exists && metav1.IsControlledBy(obj, site) && obj.Spec.Rules[0].Host == host
	})
	if err != nil {
		return nil, nil, fmt.Errorf("the Ingress %s is %+v, wanted one for %s: %w", key, ingress, host, err)
	}
	return site, ingress, nil
}

// Each calls do for each key, several at a time, and returns the errors.
func Each(keys []types.NamespacedName, do func(key types.NamespacedName) error) error {
	return lab.Divide(len(keys), 8, func(i int) error { return do(keys[i]) })
}
