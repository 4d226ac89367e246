package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/front"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/kinds"
)

// The kind Near has a CRD, and the kind Far is of an aggregated API.
const (
	nearCRD = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: nears.near.example.com},
		spec: {group: near.example.com, scope: Namespaced, names: {plural: nears, singular: near, kind: Near, listKind: NearList},
		versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`
	farService = `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.far.example.com},
		spec: {group: far.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 10,
		insecureSkipTLSVerify: true, service: {name: far, namespace: %s, port: %s}}}`
)

// aggregation is a set that reads both kinds of a kube-apiserver.
type aggregation struct {
	*cluster
	line           *apiserver.Proxy                          // from the aggregator to the server of Far
	discovery      atomic.Pointer[discovery.DiscoveryClient] // which the set asks
	near, far      *kinds.Lease[*unstructured.Unstructured]
	set            *kinds.Set[*unstructured.Unstructured]
	events         informertest.Recorder[*unstructured.Unstructured]
	namespace      string
	nears, fars    dynamic.ResourceInterface // fars are not those of the kube-apiserver
	crds, services dynamic.ResourceInterface
}

// newAggregation begins without the CRD and the APIService.
func newAggregation(t *testing.T) *aggregation {
	t.Helper()
	a := &aggregation{cluster: newCluster(t, shared)}
	other, err := apiserver.Start(a.ctx)
	a.ok(err)
	t.Cleanup(other.Stop)
	far, err := other.Install(a.ctx, apiserver.Kind{GroupVersionKind: schema.GroupVersionKind{Group: "far.example.com", Version: "v1", Kind: "Far"}})
	a.ok(err)
	pass, err := front.ProxyTo(other.Config()) // with credentials, which the aggregator does not have
	a.ok(err)
	behind, err := front.New(pass)
	a.ok(err)
	t.Cleanup(behind.Close)
	a.line, err = apiserver.NewProxy(behind.Config())
	a.ok(err)
	t.Cleanup(a.line.Close)

	config := a.Config()
	config.Wrap(informer.Transport)
	client, err := dynamic.NewForConfig(config)
	a.ok(err)
	remote, err := dynamic.NewForConfig(other.Config())
	a.ok(err)
	a.namespace = a.cluster.namespace()
	a.nears = client.Resource(schema.GroupVersionResource{Group: "near.example.com", Version: "v1", Resource: "nears"}).Namespace(a.namespace)
	a.fars = remote.Resource(far).Namespace(a.namespace)
	a.crds = client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	a.services = client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	t.Cleanup(func() { // the kube-apiserver is that of other tests, too
		_ = a.services.Delete(context.Background(), "v1.far.example.com", metav1.DeleteOptions{})
		_ = a.crds.Delete(context.Background(), "nears.near.example.com", metav1.DeleteOptions{})
	})

	a.discovery.Store(a.discoverer(a.Config(), false))
	a.set, err = kinds.New(kinds.Clients{Dynamic: client, Discovery: a}, kinds.Options[*unstructured.Unstructured]{})
	a.ok(err)
	a.near, err = a.set.Acquire(kinds.Kind{Group: "near.example.com", Kind: "Near"})
	a.ok(err)
	a.far, err = a.set.Acquire(kinds.Kind{Group: "far.example.com", Kind: "Far"})
	a.ok(err)
	_, err = a.set.Informer().AddWatcher(&a.events, informer.WatcherOptions{MaxBacklog: -1})
	a.ok(err)
	group := &informer.Group{}
	a.ok(errors.Join(group.Add(a.set.Informer()), group.Add(a.set)))
	informertest.Run(t, group)
	return a
}

// aggregate creates the APIService of the server.
func (a *aggregation) aggregate() {
	a.Helper()
	_, err := a.client.CoreV1().Services(a.namespace).Create(a.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	a.ok(err)
	address, err := url.Parse(a.line.Config().Host)
	a.ok(err)
	a.apply(a.services, "v1.far.example.com", fmt.Sprintf(farService, a.namespace, address.Port()))
}

// discoverer returns a discovery client that asks for one document, or for one of each group and version.
func (a *aggregation) discoverer(config *rest.Config, each bool) *discovery.DiscoveryClient {
	a.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	a.ok(err)
	client.UseLegacyDiscovery = each
	return client
}

// ServerGroupsAndResources makes an aggregation the discovery of its set.
func (a *aggregation) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return a.discovery.Load().ServerGroupsAndResources()
}

// apply creates or changes an object. Its kind may not be served yet.
func (a *aggregation) apply(to dynamic.ResourceInterface, name, object string) {
	a.Helper()
	a.await(name+" is applied", func() bool {
		_, err := to.Patch(a.ctx, name, types.ApplyPatchType, []byte(object), metav1.PatchOptions{FieldManager: "test"})
		return err == nil
	})
}
