package website

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// Client reads and writes the Websites of one namespace, or of all namespaces.
type Client interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*Website, error)
	List(ctx context.Context, opts metav1.ListOptions) (*List, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, site *Website, opts metav1.CreateOptions) (*Website, error)
	Update(ctx context.Context, site *Website, opts metav1.UpdateOptions) (*Website, error)
	UpdateStatus(ctx context.Context, site *Website, opts metav1.UpdateOptions) (*Website, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Interface returns a Client for a namespace, or for all of them if the namespace is "".
type Interface interface {
	Websites(namespace string) Client
}

// Clientset is the Interface of an API server.
type Clientset struct {
	client rest.Interface
	codec  runtime.ParameterCodec
}

// NewForConfig returns the Clientset of an API server. It makes no request. It returns an error
// if config cannot be used.
func NewForConfig(config *rest.Config) (*Clientset, error) {
	scheme := runtime.NewScheme()
	AddToScheme(scheme)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	return &Clientset{client, runtime.NewParameterCodec(scheme)}, err
}

// Websites returns the Client of a namespace, or of all namespaces if it is "".
func (c *Clientset) Websites(namespace string) Client {
	return gentype.NewClientWithList(Resource.Resource, c.client, c.codec, namespace, newWebsite, newList)
}

func newWebsite() *Website { return &Website{} }

func newList() *List { return &List{} }
