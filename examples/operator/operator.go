package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	netv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/examples/operator/website"
	"github.com/customcacheinformer/informer/shards"
)

// operator gives each Website an Ingress of the same name, and writes the address of the Website
// into its status. It reads from informers and writes through clients.
type operator struct {
	websites  informer.Reader[*website.Website]
	ingresses informer.Reader[*netv1.Ingress]
	sites     website.Interface
	kube      kubernetes.Interface
}

// newSet returns the set of all replicas that share the Websites. Its Leases are in namespace.
func newSet(kube kubernetes.Interface, namespace string) (*shards.Set, error) {
	return shards.New(kube.CoordinationV1().Leases(namespace), shards.Options{Name: "websites"})
}

// run manages Websites until ctx ends: all of them if set is nil, and otherwise those that set
// gives to this replica. It adds its informers, its controller and set to group.
func run(ctx context.Context, group *informer.Group, sites website.Interface, kube kubernetes.Interface, workers int, set *shards.Set) error {
	websites, err := informer.New(sites.Websites(""), informer.Options[*website.Website]{})
	if err != nil {
		return err
	}
	ingresses, err := informer.New(kube.NetworkingV1().Ingresses(""), informer.Options[*netv1.Ingress]{})
	if err != nil {
		return err
	}

	o := &operator{websites, ingresses, sites, kube}
	// An event of a Website, or of an Ingress that belongs to one, leads to the key of the
	// Website. Only the operator writes the status, so a Website matters only if its generation
	// is new. The key also decides which replica reconciles the Website and writes its Ingress.
	controller, err := enqueue.NewController(o.reconcile, enqueue.Options{Name: "website", Workers: workers, Shards: set},
		enqueue.For(websites, enqueue.Generation),
		enqueue.Owns(ingresses, enqueue.Owners{Kind: website.Kind.GroupKind()}),
	)
	if err := errors.Join(err, group.Add(websites), group.Add(ingresses), group.Add(controller)); err != nil {
		return err
	}
	if set != nil {
		if err := group.Add(set); err != nil {
			return err
		}
	}
	return group.Run(ctx)
}

// reconcile brings one Website to the wanted state. After an error it is called again.
func (o *operator) reconcile(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	site, exists, err := o.websites.Get(key)
	if err != nil || !exists || site.DeletionTimestamp != nil {
		return 0, err // the cluster deletes the Ingress of a deleted Website
	}
	expired := false
	if site.Spec.Expires != nil {
		again = max(0, time.Until(site.Spec.Expires.Time))
		expired = again == 0
	}
	ingress, err := o.ensureIngress(ctx, site, !expired)
	if err != nil {
		return 0, err
	}

	status := website.Status{ObservedGeneration: site.Generation, Phase: website.Pending}
	if expired {
		status.Phase = website.Expired
	} else if addresses := ingress.Status.LoadBalancer.Ingress; len(addresses) > 0 {
		status.Phase, status.Address = website.Online, cmp.Or(addresses[0].IP, addresses[0].Hostname)
	}
	if site.Status == status {
		return again, nil
	}
	site = site.DeepCopy() // objects of an informer are shared: copy before changing
	site.Status = status
	_, err = o.sites.Websites(key.Namespace).UpdateStatus(ctx, site, metav1.UpdateOptions{})
	return again, err
}

// ensureIngress creates or updates the Ingress of site and returns it. If wanted is false, it
// deletes the Ingress and returns nil.
func (o *operator) ensureIngress(ctx context.Context, site *website.Website, wanted bool) (*netv1.Ingress, error) {
	client := o.kube.NetworkingV1().Ingresses(site.Namespace)
	desired := ingressFor(site)
	found, exists, err := o.ingresses.Get(types.NamespacedName{Namespace: site.Namespace, Name: site.Name})
	ours := exists && metav1.IsControlledBy(found, site)
	switch {
	case err != nil:
		return nil, err
	case !wanted && !ours:
		return nil, nil
	case !wanted:
		return nil, client.Delete(ctx, site.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID))})
	case exists && !ours:
		return nil, fmt.Errorf("there is an Ingress %s that is not this Website's", site.Name)
	case !exists:
		return client.Create(ctx, desired, metav1.CreateOptions{})
	case equality.Semantic.DeepEqual(found.Spec, desired.Spec):
		return found, nil
	}
	found = found.DeepCopy()
	found.Spec = desired.Spec
	return client.Update(ctx, found, metav1.UpdateOptions{})
}

// ingressFor returns the Ingress that site should have.
func ingressFor(site *website.Website) *netv1.Ingress {
	everything := netv1.PathTypePrefix
	return &netv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       site.Namespace,
			Name:            site.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(site, website.Kind)},
		},
		Spec: netv1.IngressSpec{Rules: []netv1.IngressRule{{
			Host: site.Spec.Host,
			IngressRuleValue: netv1.IngressRuleValue{HTTP: &netv1.HTTPIngressRuleValue{Paths: []netv1.HTTPIngressPath{{
				Path: "/", PathType: &everything,
				Backend: netv1.IngressBackend{Service: &netv1.IngressServiceBackend{
					Name: site.Spec.Service, Port: netv1.ServiceBackendPort{Number: site.Spec.Port},
				}},
			}}}},
		}}},
	}
}
