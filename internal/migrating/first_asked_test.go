package migrating_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/share"
)

// A program uses the first five of these types. It may not list the last.
var eightTypes = []runtime.Object{
	&corev1.Pod{}, &corev1.Service{}, &corev1.Node{}, &policyv1.PodDisruptionBudget{}, &corev1.ConfigMap{},
	&corev1.Secret{}, &corev1.Namespace{}, &schedulingv1.PriorityClass{},
}

func TestAMovedFactoryMakesTheSameRequests(t *testing.T) {
	for _, namespace := range []string{"", "shop"} {
		before, synced := requestsOf(t, func(client kubernetes.Interface) informers.SharedInformerFactory {
			return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
		})
		if len(before) != 10 || !synced {
			t.Errorf("client-go's factory: synced: %t, requests %q", synced, before)
		}
		after, synced := requestsOf(t, func(client kubernetes.Interface) informers.SharedInformerFactory {
			return newFactory(client, 0, namespace)
		})
		if diff := cmp.Diff(before, after); diff != "" || !synced {
			t.Errorf("moved: synced: %t, requests (-before +after):\n%s", synced, diff)
		}
	}
	if all, synced := requestsOf(t, func(client kubernetes.Interface) informers.SharedInformerFactory {
		made := newFactory(client, 0, "").(*factory)
		for _, obj := range eightTypes {
			made.InformerFor(obj, nil)
		}
		return made.SharedInformerFactory
	}); synced || len(all) < 16 {
		t.Errorf("with all informers registered: synced: %t, requests %q", synced, all)
	}
}

// requestsOf returns the requests of a program within a minute, and whether its factory syncs.
func requestsOf(t *testing.T, factoryOf func(kubernetes.Interface) informers.SharedInformerFactory) (requests []string, synced bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("list", "priorityclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schedulingv1.Resource("priorityclasses"), "", errors.New("no ClusterRole"))
		})
		of := factoryOf(client)
		of.Core().V1().Pods().Lister()
		of.Core().V1().Services().Informer()
		of.Core().V1().Nodes().Lister()
		of.Policy().V1().PodDisruptionBudgets().Lister()
		if _, err := of.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		of.StartWithContext(ctx)
		synced = of.WaitForCacheSyncWithContext(ctx).AsError() == nil
		if moved, is := of.(*factory); is {
			for _, obj := range eightTypes[:5] {
				if _, ours := moved.SharedInformerFactory.InformerFor(obj, nil).(interface{ Health() informer.Health }); !ours {
					t.Errorf("the informer of %T is client-go's", obj)
				}
			}
		}
		synctest.Wait()
		stop()
		of.Shutdown()
		for _, a := range client.Actions() {
			requests = append(requests, fmt.Sprintf("%s %s in %q", a.GetVerb(), a.GetResource().Resource, a.GetNamespace()))
		}
		slices.Sort(requests)
	})
	return requests, synced
}

func TestAFactoryTransformsAndThenShares(t *testing.T) {
	of := newFactory(fake.NewClientset(pod("web", "a"), pod("db", "b")), 0, "", informers.WithTransform(func(obj any) (any, error) {
		obj.(*corev1.Pod).Labels = map[string]string{"app": "any"}
		return obj, nil
	})).(*factory)
	of.newInformer = informer.ClientGo{Share: share.New()}.NewSharedIndexInformer
	lister := of.Core().V1().Pods().Lister()
	ctx, stop := context.WithCancel(t.Context())
	defer of.Shutdown()
	defer stop()
	of.StartWithContext(ctx)
	if err := of.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		t.Fatal(err)
	}
	pods, err := lister.List(labels.Everything())
	if err != nil || len(pods) != 2 || reflect.ValueOf(pods[0].Labels).Pointer() != reflect.ValueOf(pods[1].Labels).Pointer() {
		t.Errorf("the Pods %v do not share the labels of the transform, %v", pods, err)
	}
}
