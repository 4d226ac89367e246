package informer_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
)

func ExampleGroup() {
	client := fake.NewClientset(
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec:       corev1.PodSpec{ServiceAccountName: "cashier"},
		},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cashier"}},
	)
	pods, err := informer.New(client.CoreV1().Pods(""), informer.Options[*corev1.Pod]{})
	if err != nil {
		panic(err)
	}
	accounts, err := informer.New(client.CoreV1().ServiceAccounts(""), informer.Options[*corev1.ServiceAccount]{})
	if err != nil {
		panic(err)
	}

	var group informer.Group
	for _, member := range []informer.Member{pods, accounts} {
		if err := group.Add(member); err != nil {
			panic(err)
		}
	}
	ready := informer.ProbeHandler(group.Ready)

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = group.Run(ctx) })
	defer running.Wait()
	defer stop()

	enough, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := group.WaitForSync(enough); err != nil {
		fmt.Println(err) // names the informers that are late, and why
		return
	}
	// Objects of one informer can now be looked up in the other.
	for key, pod := range pods.All() {
		account := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}
		_, exists, err := accounts.Get(account)
		fmt.Println(key, "runs as", account, exists, err)
	}
	answer := httptest.NewRecorder()
	ready.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(answer.Body)
	// Output:
	// shop/web runs as shop/cashier true <nil>
	// ok
}

// SharedPods returns the informer for the Pods of a namespace. All parts of the program share
// it.
func SharedPods(group *informer.Group, client kubernetes.Interface, namespace string) (*informer.CustomCacheInformer[*corev1.Pod], error) {
	return informer.GetOrAdd(group, namespace, func() (*informer.CustomCacheInformer[*corev1.Pod], error) {
		return informer.New(client.CoreV1().Pods(namespace), informer.Options[*corev1.Pod]{
			Name: "Pods of " + namespace,
		})
	})
}

func ExampleGetOrAdd() {
	client := fake.NewClientset(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "vault"}},
	)
	var group informer.Group
	shop, err := SharedPods(&group, client, "shop")
	if err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = group.Run(ctx) })
	defer running.Wait()
	defer stop()

	again, _ := SharedPods(&group, client, "shop")
	fmt.Println("one for all:", again == shop)
	bank, _ := SharedPods(&group, client, "bank") // runs at once, because the group runs
	if err := group.WaitForSync(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for key := range shop.All() {
		fmt.Println(key)
	}
	for key := range bank.All() {
		fmt.Println(key)
	}
	// Output:
	// one for all: true
	// shop/web
	// bank/vault
}
