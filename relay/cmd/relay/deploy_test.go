package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifests returns the objects of the example manifests. An unknown field fails the test.
func manifests(t *testing.T) (all []runtime.Object) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			obj, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all = append(all, obj)
		}
	}
	return all
}

// first returns the first object of a type.
func first[T runtime.Object](t *testing.T, all []runtime.Object) (found T) {
	t.Helper()
	for _, obj := range all {
		if found, ok := obj.(T); ok {
			return found
		}
	}
	t.Fatalf("there is no %T", found)
	return found
}

func TestTheManifestsUseExistingFlagsAndTheServedPort(t *testing.T) {
	all := manifests(t)
	container := first[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0]
	o := parse(t, container.Args...)
	if port := container.Ports[0]; int(port.ContainerPort) != o.relay.Serving.BindPort ||
		port.Name != first[*corev1.Service](t, all).Spec.Ports[0].TargetPort.StrVal {
		t.Errorf("port %+v is not the one that is served, %d", port, o.relay.Serving.BindPort)
	}
	if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == o.dataDir }) {
		t.Errorf("no volume is mounted at %s", o.dataDir)
	}
	for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
		if path := probe.HTTPGet.Path; !slices.Contains(o.relay.Authorization.AlwaysAllowPaths, path) {
			t.Errorf("%s needs a permission", path)
		}
	}
}

func TestTheManifestsAllowTheReadsOfTheRelay(t *testing.T) {
	all := manifests(t)
	o := parse(t, first[*appsv1.Deployment](t, all).Spec.Template.Spec.Containers[0].Args...)
	rules := first[*rbacv1.ClusterRole](t, all).Rules
	for _, name := range o.resources {
		resource := schema.ParseGroupResource(name)
		if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, resource.Group) && slices.Contains(r.Resources, resource.Resource) &&
				strings.Join(r.Verbs, " ") == "get list watch"
		}) {
			t.Errorf("the ClusterRole does not allow to read %s", name)
		}
	}
}
