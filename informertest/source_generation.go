package informertest

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/customcacheinformer/informer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// generations are the kinds of Kubernetes itself whose objects have a generation, by group. Every
// custom resource has one.
var generations = map[string][]string{
	"":            {"Pod", "PodTemplate", "ReplicationController"},
	"apps":        {"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"},
	"autoscaling": {"HorizontalPodAutoscaler"},
	"batch":       {"CronJob", "Job"},
	"policy":      {"PodDisruptionBudget"},
	"admissionregistration.k8s.io": {
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
	},
	"discovery.k8s.io":             {"EndpointSlice"},
	"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
	"networking.k8s.io":            {"Ingress", "IngressClass", "NetworkPolicy"},
	"resource.k8s.io":              {"DeviceClass", "ResourceSlice"},
	"scheduling.k8s.io":            {"PriorityClass"},
	"storage.k8s.io":               {"CSIDriver"},
}

// setGeneration sets the generation of after to the one that an API server gives it, unless the
// generation of after is higher. before is the object that after replaces, or the zero T.
func setGeneration[T informer.Object](before, after T) {
	var none T
	kind, builtin := builtinKind(reflect.TypeOf(after), after.GetObjectKind().GroupVersionKind())
	if builtin && !slices.Contains(generations[kind.Group], kind.Kind) {
		return
	}
	next := int64(1)
	if before != none {
		next = before.GetGeneration()
		dies := before.GetDeletionTimestamp() == nil && after.GetDeletionTimestamp() != nil
		// The annotations of a Deployment are copied to its ReplicaSets.
		annotated := kind.Kind == "Deployment" && builtin && !maps.Equal(before.GetAnnotations(), after.GetAnnotations())
		if dies || annotated || !sameDesired(before, after) {
			next++
		}
	}
	after.SetGeneration(max(next, after.GetGeneration()))
}

// sameDesired reports whether two objects are equal except for their metadata and their status.
func sameDesired(a, b any) bool {
	if a, ok := a.(*unstructured.Unstructured); ok {
		if b, ok := b.(*unstructured.Unstructured); ok {
			return equal(desired(a), desired(b))
		}
	}
	x, y := reflect.Indirect(reflect.ValueOf(a)), reflect.Indirect(reflect.ValueOf(b))
	if x.Type() != y.Type() || x.Kind() != reflect.Struct {
		return false
	}
	for i := range x.NumField() {
		switch field := x.Type().Field(i); {
		case field.Name == "TypeMeta" || field.Name == "ObjectMeta" || field.Name == "Status" || !field.IsExported():
		case !equal(x.Field(i).Interface(), y.Field(i).Interface()):
			return false
		}
	}
	return true
}

// equal reports whether two values are equal for a server, which has decoded both from JSON. That has no parts of a second, and
// only one kind of number.
func equal(a, b any) bool { return equality.Semantic.DeepEqual(a, b) || sameJSON(a, b) }

func desired(obj *unstructured.Unstructured) map[string]any {
	content := maps.Clone(obj.Object)
	for _, name := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(content, name)
	}
	return content
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
