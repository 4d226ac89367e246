package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/customcacheinformer/informer/internal/lab"
)

// lists is how many lists the agents make to measure the cost of one.
const lists = 20

// got is what the watchers of a process have.
type got struct {
	Watching int
	Events   int     // changes, in the order of the writes
	P50, P99 float64 // latency, in seconds
	Received int64   // bytes
}

// agents are watchers of a process.
type agents struct {
	pods     []typedcore.PodInterface // one for each connection
	received count

	mu        sync.Mutex
	watching  int
	latencies []float64
	failed    error
}

// watchPods is watchers of Pods until the standard input ends.
func watchPods(c crowd) error {
	a := &agents{}
	for range max(1, min(c.Connections, c.Watchers)) {
		client, err := typedcore.NewForConfig(counted(c.Server, &a.received))
		if err != nil {
			return err
		}
		a.pods = append(a.pods, client.Pods(""))
	}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	now, err := a.pods[0].List(ctx, metav1.ListOptions{ResourceVersion: "0", FieldSelector: "metadata.name=-"})
	if err != nil {
		return err
	}
	for i := range c.Watchers {
		all.Go(func() {
			if err := a.watch(ctx, a.pods[i%len(a.pods)], now.ResourceVersion, c.After); err != nil && ctx.Err() == nil {
				a.fail(err)
			}
		})
	}
	return lab.Answer(func(question string) (got, error) {
		if question == "list" {
			for range lists {
				if _, err := a.pods[0].List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err != nil {
					return got{}, err
				}
			}
		}
		return a.got()
	})
}

// watch watches Pods from a version, and expects the change after the given one.
func (a *agents) watch(ctx context.Context, pods typedcore.PodInterface, version string, last int) error {
	w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	a.mu.Lock()
	a.watching++
	a.mu.Unlock()
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Bookmark:
			continue
		case watch.Modified:
			if last, err = a.note(e.Object.(*corev1.Pod), last); err != nil {
				return err
			}
		default:
			return fmt.Errorf("got %s %v", e.Type, e.Object)
		}
	}
	return errors.New("a watch has ended")
}

// note keeps the latency of a change, which must be the one after last.
func (a *agents) note(pod *corev1.Pod, last int) (int, error) {
	now := time.Now()
	var change int
	var written int64
	if _, err := fmt.Sscan(pod.Annotations[annotation], &change, &written); err != nil {
		return 0, fmt.Errorf("%s: %w", pod.Name, err)
	}
	if change != last+1 {
		return 0, fmt.Errorf("change %d came after change %d", change, last)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latencies = append(a.latencies, now.Sub(time.Unix(0, written)).Seconds())
	return change, nil
}

func (a *agents) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = errors.Join(a.failed, err)
}

// got returns what there is, or the errors of the watchers.
func (a *agents) got() (got, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := got{Watching: a.watching, Events: len(a.latencies), Received: a.received.Load()}
	if g.Events > 0 {
		late := lab.Quantiles(a.latencies, 0.5, 0.99)
		g.P50, g.P99 = late[0], late[1]
	}
	return g, a.failed
}
