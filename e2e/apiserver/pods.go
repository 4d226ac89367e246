package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// podModels are the names of the OpenAPI models of Pods.
var podModels = []string{corev1.Pod{}.OpenAPIModelName(), corev1.PodList{}.OpenAPIModelName()}

// withPods adds to definitions those of Pods, which allow any fields.
func withPods(definitions common.GetOpenAPIDefinitions) common.GetOpenAPIDefinitions {
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := definitions(ref)
		for _, name := range podModels {
			all[name] = common.OpenAPIDefinition{Schema: spec.Schema{
				SchemaProps:      spec.SchemaProps{Type: []string{"object"}},
				VendorExtensible: spec.VendorExtensible{Extensions: spec.Extensions{"x-kubernetes-preserve-unknown-fields": true}},
			}}
		}
		return all
	}
}

// newPodScheme returns a scheme with Pods. The API server converts each object to an internal
// version, and that of Pods is in k8s.io/kubernetes, which cannot be imported. So the internal
// version is v1.
func newPodScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypes(schema.GroupVersion{Version: runtime.APIVersionInternal}, &corev1.Pod{}, &corev1.PodList{})
	err := scheme.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind("Pod"), func(label, value string) (string, string, error) {
		if label == nodeName {
			return label, value, nil
		}
		return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
	})
	return scheme, err
}

// nodeName is the field by which Pods can be selected, besides their names and namespaces.
const nodeName = "spec.nodeName"

// installPods makes the server serve Pods and their status, from the etcd of storage. It must
// be called before the server runs.
func installPods(server *genericapiserver.GenericAPIServer, scheme *runtime.Scheme, etcd *genericoptions.EtcdOptions) error {
	codecs := serializer.NewCodecFactory(scheme)
	storage := etcd.StorageConfig
	storage.Codec = codecs.LegacyCodec(corev1.SchemeGroupVersion)
	pods := corev1.Resource("pods")
	strategy := podStrategy{ObjectTyper: scheme, NameGenerator: names.SimpleNameGenerator}
	ofStatus := strategy
	ofStatus.status = true
	store := &registry.Store{
		NewFunc:                   func() runtime.Object { return &corev1.Pod{} },
		NewListFunc:               func() runtime.Object { return &corev1.PodList{} },
		DefaultQualifiedResource:  pods,
		SingularQualifiedResource: corev1.Resource("pod"),
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            rest.NewDefaultTableConvertor(pods),
	}
	err := store.CompleteWithOptions(&generic.StoreOptions{
		RESTOptions: etcd.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: storage}, nil),
		AttrFunc: func(obj runtime.Object) (labels.Set, fields.Set, error) {
			pod := obj.(*corev1.Pod)
			return pod.Labels, generic.AddObjectMetaFieldsSet(fields.Set{nodeName: pod.Spec.NodeName}, &pod.ObjectMeta, true), nil
		},
	})
	if err != nil {
		return err
	}
	status := *store
	status.UpdateStrategy = ofStatus
	group := genericapiserver.NewDefaultAPIGroupInfo("", scheme, runtime.NewParameterCodec(scheme), codecs)
	group.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"pods": store, "pods/status": &status}
	return server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, &group)
}

// podStrategy separates the status of a Pod from the rest, as the real one does. It neither
// validates Pods nor fills in defaults.
type podStrategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	status bool // for updates of the status
}

func (podStrategy) NamespaceScoped() bool { return true }

func (podStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	obj.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodPending}
}

func (s podStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	if after, before := obj.(*corev1.Pod), old.(*corev1.Pod); s.status {
		after.Spec = before.Spec
	} else {
		after.Status = before.Status
	}
}

func (podStrategy) Validate(context.Context, runtime.Object) field.ErrorList { return nil }
func (podStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
func (podStrategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (podStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (podStrategy) Canonicalize(runtime.Object)                   {}
func (podStrategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (podStrategy) AllowUnconditionalUpdate(context.Context) bool { return true }
