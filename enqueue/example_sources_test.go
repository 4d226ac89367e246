package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name}
}

// A controller for Pods that depend on Secrets. For gives it the keys of the Pods. Watches gives it
// the keys of all Pods that mount a Secret, when that Secret changes; an index of the informer of
// the Pods finds them.
func ExampleWatches() {
	pod := &corev1.Pod{ObjectMeta: named("web")}
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "password"}}}}
	secret := &corev1.Secret{ObjectMeta: named("password")}
	server := informertest.NewSource(secret) // a program has informer.New(client.CoreV1().Secrets(""), …)

	pods, err := informer.NewFrom(informertest.NewSource(pod), informer.Options[*corev1.Pod]{
		Indexers: informer.Indexers[*corev1.Pod]{"secret": mountedSecrets},
	})
	if err != nil {
		panic(err)
	}
	secrets, err := informer.NewFrom(server, informer.Options[*corev1.Secret]{})
	if err != nil {
		panic(err)
	}
	mounting := func(_ context.Context, secret *corev1.Secret) (keys []types.NamespacedName, err error) {
		found, err := pods.ByIndex("secret", secret.Namespace+"/"+secret.Name)
		for _, pod := range found {
			keys = append(keys, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
		return keys, err
	}
	reconciled := make(chan string)
	reconcile := func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
		secret, _, err := secrets.Get(types.NamespacedName{Namespace: key.Namespace, Name: "password"})
		if err == nil {
			reconciled <- fmt.Sprintf("%s, with the password %q", key.Name, secret.Data["password"])
		}
		return 0, err
	}
	controller, err := enqueue.NewController(reconcile, enqueue.Options{Name: "pod"},
		enqueue.For(pods), enqueue.Watches(secrets, mounting))
	if err != nil {
		panic(err)
	}

	var group informer.Group
	if err := errors.Join(group.Add(pods), group.Add(secrets), group.Add(controller)); err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = group.Run(ctx) })
	fmt.Println(<-reconciled)
	secret = secret.DeepCopy()
	secret.Data = map[string][]byte{"password": []byte("swordfish")}
	server.Apply(secret)
	fmt.Println(<-reconciled)
	stop()
	running.Wait()
	// Output:
	// web, with the password ""
	// web, with the password "swordfish"
}

func ofDeployment(name string, rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: name, Controller: ptr.To(true)}}
	return rs
}

// A controller for Deployments, which is called for a Deployment also when one of its ReplicaSets
// changes. Generation keeps out the updates of a Deployment that change only its status.
func ExampleOwns() {
	server := informertest.NewSource[*appsv1.ReplicaSet]() // a program has informer.New(client.AppsV1().ReplicaSets(""), …)
	deployments, err := informer.NewFrom(informertest.NewSource(&appsv1.Deployment{ObjectMeta: named("web")}), informer.Options[*appsv1.Deployment]{})
	if err != nil {
		panic(err)
	}
	replicaSets, err := informer.NewFrom(server, informer.Options[*appsv1.ReplicaSet]{})
	if err != nil {
		panic(err)
	}
	reconciled := make(chan types.NamespacedName)
	reconcile := func(_ context.Context, key types.NamespacedName) (time.Duration, error) {
		reconciled <- key
		return 0, nil
	}
	controller, err := enqueue.NewController(reconcile, enqueue.Options{Name: "deployment"},
		enqueue.For(deployments, enqueue.Generation),
		enqueue.Owns(replicaSets, enqueue.Owners{Kind: schema.GroupKind{Group: "apps", Kind: "Deployment"}}))
	if err != nil {
		panic(err)
	}

	var group informer.Group
	if err := errors.Join(group.Add(deployments), group.Add(replicaSets), group.Add(controller)); err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = group.Run(ctx) })
	fmt.Println("at the start:", <-reconciled)
	server.Apply(ofDeployment("web", &appsv1.ReplicaSet{ObjectMeta: named("web-1")}))
	fmt.Println("a ReplicaSet is created:", <-reconciled)
	stop()
	running.Wait()
	// Output:
	// at the start: default/web
	// a ReplicaSet is created: default/web
}
