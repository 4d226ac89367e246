package relay

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

func (r *Resource) builtIn() bool { return scheme.Scheme.Recognizes(r.GroupVersion().WithKind(r.Kind)) }

func (r *Resource) newObject() runtime.Object {
	kind := r.GroupVersion().WithKind(r.Kind)
	if obj, err := scheme.Scheme.New(kind); err == nil {
		return obj
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	return obj
}

// source returns the source of the informer. It asks for built-in types as protobuf. It calls answered
// with the outcome of each request. After the end of stopping, the source makes no request.
func (r *Resource) source(stopping context.Context, upstream *rest.Config, answered func(error)) (cache.ListerWatcher, error) {
	if !r.builtIn() {
		client, err := dynamic.NewForConfig(upstream)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name(), err)
		}
		return newPatient(stopping, informer.ListWatch(client.Resource(r.GroupVersionResource)), answered), nil
	}
	config := rest.CopyConfig(upstream)
	version := r.GroupVersion()
	config.GroupVersion = &version
	config.APIPath = "/apis"
	if r.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.name(), err)
	}
	return newPatient(stopping, cache.NewListWatchFromClient(client, r.Resource, "", fields.Everything()), answered), nil
}
