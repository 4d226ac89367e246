package main

import (
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

const widgetVersion = "example.com/v1"

var (
	widgetGroup    = schema.GroupVersion{Group: "example.com", Version: "v1"}
	widgetResource = widgetGroup.WithResource("widgets")
)

// Widget is a custom resource of 0.9 kB.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   WidgetSpec   `json:"spec"`
	Status WidgetStatus `json:"status"`
}

// WidgetSpec is the part that a user writes.
type WidgetSpec struct {
	Replicas int64             `json:"replicas"`
	Image    string            `json:"image"`
	Settings map[string]string `json:"settings"`
}

// WidgetStatus is the part that a controller writes.
type WidgetStatus struct {
	Ready      int64              `json:"ready"`
	Conditions []metav1.Condition `json:"conditions"`
}

// DeepCopyObject returns a copy.
func (w *Widget) DeepCopyObject() runtime.Object {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Settings = maps.Clone(w.Spec.Settings)
	c.Status.Conditions = nil
	for _, condition := range w.Status.Conditions {
		c.Status.Conditions = append(c.Status.Conditions, *condition.DeepCopy())
	}
	return &c
}

// WidgetList is a list of Widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Widget `json:"items"`
}

// DeepCopyObject returns a copy.
func (l *WidgetList) DeepCopyObject() runtime.Object {
	c := &WidgetList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&c.ListMeta)
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Widget))
	}
	return c
}

// widgets is a client as client-gen makes it.
type widgets struct {
	*gentype.ClientWithList[*Widget, *WidgetList]
}

func newWidgets(config *rest.Config) (*widgets, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(widgetGroup, &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(scheme, widgetGroup)
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &widgetGroup, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &widgets{gentype.NewClientWithList("widgets", client, runtime.NewParameterCodec(scheme), "",
		func() *Widget { return &Widget{} }, func() *WidgetList { return &WidgetList{} })}, nil
}

// newWidget returns Widget i after a number of updates.
func newWidget(i, updates int) *Widget {
	at := metav1.NewTime(time.Unix(1_700_000_000+int64(i), 0).UTC())
	fields := `{"f:spec":{"f:image":{},"f:replicas":{},"f:settings":{".":{},"f:mode":{},"f:zone":{}}},"f:status":{"f:conditions":{},"f:ready":{}}}`
	return &Widget{
		TypeMeta: metav1.TypeMeta{APIVersion: widgetVersion, Kind: "Widget"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("widget-%06d", i), UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)),
			ResourceVersion: fmt.Sprint(i + 1), Generation: int64(1 + updates), CreationTimestamp: at,
			Labels:        map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", i%500), "tier": "backend"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "operator", Operation: "Update", APIVersion: widgetVersion, Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}},
		},
		Spec: WidgetSpec{Replicas: 3, Image: "registry.example.com/" + strings.Repeat("w", 20) + ":v1", Settings: map[string]string{"mode": "fast", "zone": fmt.Sprint("z", i%3)}},
		Status: WidgetStatus{Ready: int64(updates), Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: at, Reason: "AllReplicasReady", Message: "3 of 3 replicas are ready",
		}}},
	}
}
