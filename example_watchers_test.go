package informer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// A failing watcher is called again, without any effect on other watchers. Its error shows
// whether a retry can help.
func ExampleBackoff() {
	src := informertest.NewSource(object("broken", "1"), object("flaky", "2"))
	inf, _ := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{
		ErrorHandler: func(_ context.Context, err error) {
			var failed *informer.EventError
			if errors.As(err, &failed) && failed.GaveUp {
				fmt.Println(err)
			}
		},
	})
	attempts := map[string]int{}
	done := make(chan struct{})
	_, err := inf.AddWatcher(informer.WatcherFunc[*corev1.ConfigMap](func(_ context.Context, e informer.Event[*corev1.ConfigMap]) error {
		name := e.Key().Name
		attempts[name]++
		switch {
		case name == "broken":
			return fmt.Errorf("no such tenant: %w", informer.ErrPermanent)
		case attempts[name] < 3:
			return errors.New("the mail server is busy")
		}
		fmt.Println(name, "sent at attempt", attempts[name])
		close(done)
		return nil
	}), informer.WatcherOptions{
		Name:  "mailer",
		Retry: informer.Backoff(time.Millisecond, time.Second, 10),
	})
	if err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	<-done
	stop()
	running.Wait()
	// Unordered output:
	// watcher mailer: added default/broken: no such tenant: permanent failure (given up)
	// flaky sent at attempt 3
}

// A watcher that cannot keep up gets the newest state of each object. It takes no more
// memory than these states.
func ExampleWatcherOptions_maxBacklog() {
	src := informertest.NewSource(object("counter", "0"))
	busy, done := make(chan struct{}), make(chan struct{})
	ready := sync.OnceFunc(func() { close(busy) })
	inf, _ := informer.NewFrom(src, informer.Options[*corev1.ConfigMap]{
		Observer: &informer.Observer{Lagging: func(i informer.BacklogInfo) {
			if i.Lagging {
				ready()
			}
		}},
	})
	reg, err := inf.AddWatcher(informer.WatcherFuncs[*corev1.ConfigMap]{
		AddFunc: func(context.Context, informer.Event[*corev1.ConfigMap]) error {
			<-busy // stands for slow work
			return nil
		},
		UpdateFunc: func(_ context.Context, e informer.Event[*corev1.ConfigMap]) error {
			if e.New.Data["value"] == "1000" {
				close(done)
			}
			return nil
		},
	}, informer.WatcherOptions{Name: "slow", MaxBacklog: 10})
	if err != nil {
		panic(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = inf.Run(ctx) })
	<-inf.Synced()
	for n := range 1000 {
		src.Apply(object("counter", fmt.Sprint(n+1)))
	}
	<-done
	stop()
	running.Wait()
	s := reg.Stats()
	fmt.Println("some were merged:", s.Merged > 0, "and none lost:", s.Delivered+s.Merged+s.Pending == 1001)
	// Output:
	// some were merged: true and none lost: true
}
