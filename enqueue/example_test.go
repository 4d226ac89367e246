package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
)

// A controller for ConfigMaps. It is called for each of them, reads the object by its key, and is
// called again after an error.
func ExampleNewController() {
	client := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}})
	configs, err := informer.New(client.CoreV1().ConfigMaps(""), informer.Options[*corev1.ConfigMap]{})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	reconcile := func(_ context.Context, key types.NamespacedName) (again time.Duration, err error) {
		config, exists, err := configs.Get(key)
		if err != nil || !exists {
			return 0, err // there is nothing to do for a ConfigMap that is deleted
		}
		fmt.Println("reconciling", config.Name)
		stop() // a real program runs until it gets a signal
		return 0, nil
	}
	controller, err := enqueue.NewController(reconcile, enqueue.Options{Name: "settings"}, enqueue.For(configs))
	if err != nil {
		panic(err)
	}

	var group informer.Group
	if err := errors.Join(group.Add(configs), group.Add(controller), group.Run(ctx)); err != nil {
		panic(err)
	}
	fmt.Println("reconciled", controller.Health().Succeeded)
	// Output:
	// reconciling settings
	// reconciled 1
}

// runElected runs a group on each replica. Its controllers have elected as Options.Elected and lost as
// Options.Lost. When it returns, end the process.
func runElected(ctx context.Context, group *informer.Group, lock resourcelock.Interface, elected, lost chan struct{}) error {
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: func() { end(informer.ErrLeaseLost); close(lost) },
		},
	})
	if err != nil {
		return err
	}
	var elections sync.WaitGroup
	elections.Go(func() { elector.Run(electing) })
	ended := make(chan error, 1)
	go func() { ended <- group.Run(running) }()
	wasLost := false // perhaps in the middle of a stop, whose cause is another one
	select {
	case err = <-ended:
	case <-lost:
		wasLost = true
		select {
		case err = <-ended:
		case <-time.After(5 * time.Second): // LeaseDuration less RenewDeadline
			err = errors.New("a call has not returned, and ends with the process")
		}
	}
	release() // no call is under way any more, so another replica may begin
	elections.Wait()
	if wasLost || errors.Is(context.Cause(running), informer.ErrLeaseLost) {
		err = errors.Join(informer.ErrLeaseLost, err)
	}
	return err
}

func mountedSecrets(pod *corev1.Pod) (names []string, err error) {
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret != nil {
			names = append(names, pod.Namespace+"/"+volume.Secret.SecretName)
		}
	}
	return names, nil
}
