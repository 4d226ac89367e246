// Package cluster provides what the example operator needs of a cluster: a real API server
// with Websites and Ingresses, clients and informers for them, and for each operator a Front
// of its own, through which it reaches the API server.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	netv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/examples/operator/website"
)

// Program is the import path of the example operator.
const Program = "github.com/customcacheinformer/informer/examples/operator"

// Ingresses is the resource of Ingresses in the API.
var Ingresses = netv1.SchemeGroupVersion.WithResource("ingresses")

// Cluster is an API server with clients and informers. The operator uses none of these.
type Cluster struct {
	*apiserver.Server
	Sites   website.Interface
	Kube    kubernetes.Interface
	dynamic dynamic.Interface

	// Websites and Ingresses hold all objects of all namespaces.
	Websites  *informer.CustomCacheInformer[*website.Website]
	Ingresses *informer.CustomCacheInformer[*netv1.Ingress]

	informers informer.Group
	stop      context.CancelFunc
	ended     chan error // receives the result of the informers when they have returned
}

// Start starts a Cluster that runs until Stop. ctx bounds only the start.
func Start(ctx context.Context) (*Cluster, error) {
	server, err := apiserver.Start(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Server: server, ended: make(chan error, 1)}
	if err := errors.Join(c.install(ctx), c.connect()); err != nil {
		server.Stop()
		return nil, err
	}
	running, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	go func() { c.ended <- c.informers.Run(running) }()
	if err := c.informers.WaitForSync(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Stop stops the informers and the API server, and returns when both have stopped.
func (c *Cluster) Stop() error {
	c.stop()
	err := <-c.ended
	c.Server.Stop()
	return err
}

// Sources returns the directory of the example operator.
func Sources(ctx context.Context) (string, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", Program).Output()
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", Program, err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// install installs the operator's definition, and a stand-in for Ingresses.
func (c *Cluster) install(ctx context.Context) error {
	dir, err := Sources(ctx)
	if err != nil {
		return err
	}
	file, err := os.ReadFile(filepath.Join(dir, "crd.yaml"))
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(file, crd); err != nil {
		return err
	}
	if _, err := c.InstallDefinition(ctx, crd); err != nil {
		return err
	}
	_, err = c.Install(ctx, apiserver.Kind{GroupVersionKind: netv1.SchemeGroupVersion.WithKind("Ingress"), Status: true})
	return err
}

// connect creates the clients and the informers.
func (c *Cluster) connect() (err error) {
	config := c.Config()
	config.ContentType = runtime.ContentTypeJSON // the Ingresses are a stand-in, see Install
	if c.Sites, err = website.NewForConfig(config); err != nil {
		return err
	}
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if c.Websites, err = informer.New(c.Sites.Websites(""), informer.Options[*website.Website]{}); err != nil {
		return err
	}
	if c.Ingresses, err = informer.New(c.Kube.NetworkingV1().Ingresses(""), informer.Options[*netv1.Ingress]{}); err != nil {
		return err
	}
	return errors.Join(c.informers.Add(c.Websites), c.informers.Add(c.Ingresses))
}

// Patch changes an object or one of its subresources with a JSON merge patch, which cannot
// conflict.
func (c *Cluster) Patch(ctx context.Context, resource schema.GroupVersionResource, key types.NamespacedName, patch string, subresources ...string) error {
	_, err := c.dynamic.Resource(resource).Namespace(key.Namespace).
		Patch(ctx, key.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}
