package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

// ensure brings the ConfigMap of a Service to the wanted state. found is nil if the informer has none.
func ensure(ctx context.Context, client kubernetes.Interface, owner *corev1.Service, found, want *corev1.ConfigMap) error {
	configs := client.CoreV1().ConfigMaps(want.Namespace)
	if found == nil {
		_, err := configs.Create(ctx, want, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		// The informer does not have it yet, or never will.
		if found, err = configs.Get(ctx, want.Name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	if !metav1.IsControlledBy(found, owner) {
		return fmt.Errorf("there is a ConfigMap %s that is not this Service's", found.Name)
	}
	if maps.Equal(found.Labels, want.Labels) && maps.Equal(found.Data, want.Data) {
		return nil
	}
	found = found.DeepCopy()
	found.Labels, found.Data = want.Labels, want.Data
	_, err := configs.Update(ctx, found, metav1.UpdateOptions{})
	return err
}

// The informer has the ConfigMaps with a label only. The label of a child is taken off, and then its owner too.
func TestAChildThatTheInformerDoesNotHaveIsRestoredOrReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "1"}}
		want := &corev1.ConfigMap{Data: map[string]string{"v": "good"}, ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "a", Labels: map[string]string{"managed": "yes"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("Service"))},
		}}
		server, client := informertest.NewSource[*corev1.ConfigMap](), fake.NewClientset()
		server.Serve(&client.Fake, "configmaps", &corev1.ConfigMapList{})
		services, _ := informer.NewFrom(informertest.NewSource(owner), informer.Options[*corev1.Service]{})
		configs, _ := informer.New(client.CoreV1().ConfigMaps(""), informer.Options[*corev1.ConfigMap]{
			TweakListOptions: func(o *metav1.ListOptions) { o.LabelSelector = "managed=yes" },
		})
		var reported atomic.Int64
		c, err := enqueue.NewController(func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
			found, _, _ := configs.Get(key)
			return 0, ensure(ctx, client, owner, found, want)
		}, enqueue.Options{Name: "service", ErrorHandler: func(context.Context, error) { reported.Add(1) }},
			enqueue.For(services), enqueue.Owns(configs, enqueue.Owners{Kind: schema.GroupKind{Kind: "Service"}}))
		var group informer.Group
		if err := errors.Join(err, group.Add(services), group.Add(configs), group.Add(c)); err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, &group)
		for _, of := range [][]metav1.OwnerReference{want.OwnerReferences, nil} {
			time.Sleep(time.Minute)
			child, err := server.Get(types.NamespacedName{Namespace: "ns", Name: "a"})
			if err != nil || child.Data["v"] != "good" || child.Labels["managed"] != "yes" || reported.Load() > 0 {
				t.Fatalf("the child is %v, %v", child, err)
			}
			child = child.DeepCopy()
			child.Labels, child.Data, child.OwnerReferences = nil, map[string]string{"v": "bad"}, of
			server.Apply(child)
		}
		time.Sleep(time.Minute)
		if child := server.Objects()[0]; child.Data["v"] != "bad" || reported.Load() == 0 {
			t.Errorf("the foreign ConfigMap is %v, and %d errors are reported", child, reported.Load())
		}
	})
}
