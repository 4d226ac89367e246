package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	netv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/customcacheinformer/informer/examples/operator/website"
)

// operator gives each Website an Ingress and a status. It reads from the manager's cache,
// which returns copies, and writes through the same client.
type operator struct{ client client.Client }

func (o *operator) reconcile(ctx context.Context, r reconcile.Request) (result reconcile.Result, err error) {
	site := &website.Website{}
	err = o.client.Get(ctx, r.NamespacedName, site)
	if err != nil || site.DeletionTimestamp != nil {
		return result, client.IgnoreNotFound(err)
	}
	expired := false
	if site.Spec.Expires != nil {
		result.RequeueAfter = max(0, time.Until(site.Spec.Expires.Time))
		expired = result.RequeueAfter == 0
	}
	ingress, err := o.ensureIngress(ctx, site, !expired)
	if err != nil {
		return reconcile.Result{}, err
	}

	status := website.Status{ObservedGeneration: site.Generation, Phase: website.Pending}
	if expired {
		status.Phase = website.Expired
	} else if addresses := ingress.Status.LoadBalancer.Ingress; len(addresses) > 0 {
		status.Phase, status.Address = website.Online, cmp.Or(addresses[0].IP, addresses[0].Hostname)
	}
	if site.Status == status {
		return result, nil
	}
	site.Status = status
	return result, o.client.Status().Update(ctx, site)
}

// ensureIngress creates, repairs or deletes the Ingress of site, and returns it.
func (o *operator) ensureIngress(ctx context.Context, site *website.Website, wanted bool) (*netv1.Ingress, error) {
	desired, found := ingressFor(site), &netv1.Ingress{}
	err := o.client.Get(ctx, client.ObjectKeyFromObject(site), found)
	exists := err == nil
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, err
	case exists && !metav1.IsControlledBy(found, site):
		return nil, fmt.Errorf("there is an Ingress %s that is not this Website's", site.Name)
	case !wanted && exists:
		return nil, o.client.Delete(ctx, found, client.Preconditions{UID: &found.UID})
	case !wanted:
		return nil, nil
	case !exists:
		return desired, o.client.Create(ctx, desired)
	case equality.Semantic.DeepEqual(found.Spec, desired.Spec):
		return found, nil
	}
	found.Spec = desired.Spec
	return found, o.client.Update(ctx, found)
}

// ingressFor returns the Ingress that site asks for.
func ingressFor(site *website.Website) *netv1.Ingress {
	everything := netv1.PathTypePrefix
	backend := netv1.IngressBackend{Service: &netv1.IngressServiceBackend{
		Name: site.Spec.Service, Port: netv1.ServiceBackendPort{Number: site.Spec.Port},
	}}
	paths := []netv1.HTTPIngressPath{{Path: "/", PathType: &everything, Backend: backend}}
	return &netv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       site.Namespace,
			Name:            site.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(site, website.Kind)},
		},
		Spec: netv1.IngressSpec{Rules: []netv1.IngressRule{{
			Host:             site.Spec.Host,
			IngressRuleValue: netv1.IngressRuleValue{HTTP: &netv1.HTTPIngressRuleValue{Paths: paths}},
		}}},
	}
}
