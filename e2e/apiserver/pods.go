package apiserver

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// podModels are the names of the OpenAPI models of Pods and Secrets.
var podModels = []string{
	corev1.Pod{}.OpenAPIModelName(), corev1.PodList{}.OpenAPIModelName(),
	corev1.Secret{}.OpenAPIModelName(), corev1.SecretList{}.OpenAPIModelName(),
}

// withPods adds to definitions those of Pods and Secrets, which allow any fields.
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

// newPodScheme returns a scheme with Pods and Secrets. The API server converts each object to an internal
// version, and those of Pods and Secrets are in k8s.io/kubernetes, which cannot be imported. So the
// internal version is v1.
func newPodScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypes(schema.GroupVersion{Version: runtime.APIVersionInternal},
		&corev1.Pod{}, &corev1.PodList{}, &corev1.Secret{}, &corev1.SecretList{})
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

// installPods makes the server serve Pods with their status, and Secrets, from the etcd of storage.
// It must be called before the server runs.
func installPods(server *genericapiserver.GenericAPIServer, scheme *runtime.Scheme, etcd *genericoptions.EtcdOptions) error {
	codecs := serializer.NewCodecFactory(scheme)
	storage := etcd.StorageConfig
	storage.Codec = codecs.LegacyCodec(corev1.SchemeGroupVersion)
	options := &generic.StoreOptions{
		RESTOptions: etcd.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: storage}, nil),
		AttrFunc: func(obj runtime.Object) (labels.Set, fields.Set, error) {
			meta, selectable := obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta), fields.Set{}
			if pod, ok := obj.(*corev1.Pod); ok {
				selectable[nodeName] = pod.Spec.NodeName
			}
			return meta.Labels, generic.AddObjectMetaFieldsSet(selectable, meta, true), nil
		},
	}
	strategy := podStrategy{ObjectTyper: scheme, NameGenerator: names.SimpleNameGenerator}
	ofStatus := strategy
	ofStatus.status = true
	storeOf := func(plural, singular string, object, list func() runtime.Object) *registry.Store {
		return &registry.Store{
			NewFunc:                   object,
			NewListFunc:               list,
			DefaultQualifiedResource:  corev1.Resource(plural),
			SingularQualifiedResource: corev1.Resource(singular),
			CreateStrategy:            strategy,
			UpdateStrategy:            strategy,
			DeleteStrategy:            strategy,
			TableConvertor:            rest.NewDefaultTableConvertor(corev1.Resource(plural)),
		}
	}
	pods := storeOf("pods", "pod", func() runtime.Object { return &corev1.Pod{} }, func() runtime.Object { return &corev1.PodList{} })
	secrets := storeOf("secrets", "secret", func() runtime.Object { return &corev1.Secret{} }, func() runtime.Object { return &corev1.SecretList{} })
	if err := errors.Join(pods.CompleteWithOptions(options), secrets.CompleteWithOptions(options)); err != nil {
		return err
	}
	status := *pods
	status.UpdateStrategy = ofStatus
	group := genericapiserver.NewDefaultAPIGroupInfo("", scheme, runtime.NewParameterCodec(scheme), codecs)
	group.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"pods": pods, "pods/status": &status, "secrets": secrets}
	return server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, &group)
}

// podStrategy separates the status of a Pod from the rest, as the real one does. It neither
// validates objects nor fills in defaults.
type podStrategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	status bool // for updates of the status
}

func (podStrategy) NamespaceScoped() bool { return true }

func (podStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	}
}

func (s podStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	after, ok := obj.(*corev1.Pod)
	switch {
	case !ok: // a Secret
	case s.status:
		after.Spec = old.(*corev1.Pod).Spec
	default:
		after.Status = old.(*corev1.Pod).Status
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
