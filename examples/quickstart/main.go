// Command quickstart runs three watchers over one informer for a few seconds. It then compares
// the events of each watcher with the contents of the store. Without flags it needs nothing:
// it watches Pods of a fake clientset, and keeps changing them. With -kubeconfig it watches
// the Pods of a real cluster, and only reads. With -http it serves a page that shows the
// informer and its watchers at work, and it serves their metrics:
//
//	go run ./examples/quickstart -http localhost:8080 -duration 10m
//
// This file is the part that uses the informer. The fake cluster and the HTTP server are in
// cluster.go, and the comparison is in view.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/customcacheinformer/informer"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "watch the cluster that this file describes (default: a fake clientset)")
	namespace := flag.String("namespace", "", "watch one namespace (default: all)")
	duration := flag.Duration("duration", 4*time.Second, "how long to watch")
	address := flag.String("http", "", "serve /debug/informers and /metrics at this address, such as localhost:8080 (default: serve nothing)")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *kubeconfig, *namespace, *address, *duration)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// slowness is how long the slow watcher takes for each change.
const slowness = 250 * time.Millisecond

func run(ctx context.Context, out io.Writer, kubeconfig, namespace, address string, duration time.Duration) error {
	if duration <= 0 {
		return fmt.Errorf("-duration is %v, want more than 0", duration)
	}
	client, disconnect, err := connect(ctx, kubeconfig, namespace, duration)
	if err != nil {
		return err
	}
	defer disconnect()
	var group informer.Group
	if address != "" {
		stop, err := serve(out, address, &group)
		if err != nil {
			return fmt.Errorf("-http: %w", err)
		}
		defer stop()
	}

	return follow(ctx, out, &group, client.CoreV1().Pods(namespace), duration)
}

// follow adds an informer to group, runs the group for the duration, and compares the watchers
// with the store. It returns an error if the informer does not sync, or if a watcher differs from
// the store.
func follow(ctx context.Context, out io.Writer, group *informer.Group, client typedcorev1.PodInterface, duration time.Duration) (err error) {
	// The informer. It makes no request before it runs.
	pods, err := informer.New(client, informer.Options[*corev1.Pod]{
		Transform: informer.StripManagedFields[*corev1.Pod],
		Indexers: informer.Indexers[*corev1.Pod]{
			"node": func(pod *corev1.Pod) ([]string, error) { return []string{pod.Spec.NodeName}, nil },
		},
	})
	if err != nil {
		return err
	}

	// Two watchers that are there from the beginning. Each has a view, which remembers what the
	// watcher got.
	screen := newScreen(out)
	fmt.Fprintf(screen, "Three watchers follow one informer for %v: a quick one, one that takes %v over each\nchange, and one that joins later. The others do not wait for the slow one.\n\n", duration, slowness)
	quick, slow, late := newView("quick"), newView("slow"), newView("late")
	hurry := make(chan struct{}) // closed when the slow watcher should not be slow any more
	err = errors.Join(
		watch(pods, screen, quick, func(context.Context) {}),
		watch(pods, screen, slow, func(ctx context.Context) {
			select {
			case <-time.After(slowness):
			case <-hurry:
			case <-ctx.Done(): // the informer stops
			}
		}),
		group.Add(pods),
	)
	if err != nil {
		return err
	}

	// Run blocks until ctx ends, so it gets a goroutine.
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- group.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-stopped)
	}()
	// An API server that cannot be reached, or that refuses, shows here.
	first, stopWaiting := context.WithTimeout(ctx, max(duration, 30*time.Second))
	defer stopWaiting()
	if err := pods.WaitForSync(first); err != nil {
		return err
	}

	sleep(ctx, duration/2)
	if err := read(pods, screen); err != nil {
		return err
	}
	if err := watch(pods, screen, late, func(context.Context) {}); err != nil { // at any time
		return err
	}
	sleep(ctx, duration/2)
	screen.line("no more dawdling; everyone catches up")
	close(hurry)
	return compare(ctx, screen, pods, quick, slow, late)
}

// watch adds a watcher that shows each change on the screen and in view v. It calls dawdle for
// each change, which may block.
func watch(pods *informer.CustomCacheInformer[*corev1.Pod], out *screen, v *view, dawdle func(context.Context)) error {
	out.line("%-5s  joins", v.name)
	// The informer calls the function for one event after the other, and never for two at once.
	// An error would be logged, or tried again with WatcherOptions.Retry.
	_, err := pods.AddWatcher(informer.WatcherFunc[*corev1.Pod](func(ctx context.Context, e informer.Event[*corev1.Pod]) error {
		// A watcher first gets the objects that are there, as adds, and then every change. It
		// must not change the objects: all watchers and readers share them.
		if e.Origin != informer.OriginInitial {
			dawdle(ctx)
			out.line("%-5s  %-7s  %s", v.name, e.Type, e.Key())
		}
		v.see(e)
		return nil
	}), informer.WatcherOptions{
		Name: v.name, // in logs, metrics and on the page
		OnSynced: func(context.Context) {
			out.line("%-5s  has seen the initial state: %d objects", v.name, v.size())
		},
	})
	return err
}

// read shows the ways to read. They read the store and not the API server, and need no watcher.
func read(pods informer.Reader[*corev1.Pod], out *screen) error {
	all, err := pods.List("", labels.Everything()) // "" is all namespaces
	if err != nil {
		return err
	}
	if len(all) == 0 { // all have been deleted
		out.line("a reader finds no objects")
		return nil
	}
	pod, exists, err := pods.Get(types.NamespacedName{Namespace: all[0].Namespace, Name: all[0].Name})
	if err != nil {
		return err
	}
	if !exists { // it has been deleted since List
		out.line("a reader finds %d objects, and no longer %s/%s", len(all), all[0].Namespace, all[0].Name)
		return nil
	}
	same, err := pods.ByIndex("node", pod.Spec.NodeName)
	if err != nil {
		return err
	}
	out.line("a reader finds %d objects, such as %s/%s; %d of them are on %s", len(all), pod.Namespace, pod.Name, len(same), pod.Spec.NodeName)
	return nil
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
