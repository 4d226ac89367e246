// Command recorder mirrors the ConfigMaps of a cluster in a directory: each ConfigMap is a
// file, namespace/name.json. It is an example of a program that needs no queue. Its watcher
// may block and fail, is called for many objects at once, and is called again for failed
// events.
//
// Without -kubeconfig it follows a fake clientset, which it keeps changing for a few seconds.
// Run it twice with the same -dir: the second run removes files of objects that no longer
// exist. While it runs, make a directory in it read-only and later writable again, and see
// that nothing is missing.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/customcacheinformer/informer"
)

func main() {
	dir := flag.String("dir", "", "write the files here (default: a new temporary directory)")
	kubeconfig := flag.String("kubeconfig", "", "follow the cluster that this file describes, until interrupted (default: a fake clientset)")
	namespace := flag.String("namespace", "", "follow one namespace (default: all)")
	duration := flag.Duration("duration", 4*time.Second, "how long the fake clientset lives")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, say, *dir, *kubeconfig, *namespace, *duration)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "recorder:", err)
		os.Exit(1)
	}
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func run(ctx context.Context, log func(string, ...any), dir, kubeconfig, namespace string, duration time.Duration) error {
	root, err := openDisk(dir)
	if err != nil {
		return fmt.Errorf("-dir: %w", err)
	}
	defer func() { _ = root.Close() }()
	var client kubernetes.Interface
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return fmt.Errorf("-kubeconfig: %w", err)
		}
		if client, err = kubernetes.NewForConfig(config); err != nil {
			return fmt.Errorf("-kubeconfig: %w", err)
		}
	} else {
		client = fake.NewClientset(settings(namespace, 0), settings(namespace, 1))
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		var changing sync.WaitGroup
		changing.Go(func() { change(ctx, client, namespace) })
		defer changing.Wait()
		defer cancel()
	}
	inf, reg, err := follow(informer.ListWatch(client.CoreV1().ConfigMaps(namespace)), namespace, root, log)
	if err != nil {
		return err
	}
	log("The ConfigMaps are written to %s", root.Name())
	if err := inf.Run(ctx); err != nil {
		return err
	}
	if s := reg.Stats(); s.Pending > 0 {
		return fmt.Errorf("%d changes could not be written before the end", s.Pending)
	}
	log("All observed changes are written to %s", root.Name())
	return nil
}

// settings returns the n-th ConfigMap of the fake cluster.
func settings(namespace string, n int) configMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: cmp.Or(namespace, "default"),
		Name:      fmt.Sprintf("settings-%d", n),
	}}
}

// change creates, changes and deletes ConfigMaps until ctx ends. It pauses before each change
// for two reasons: a fake loses a delete between the first LIST and its WATCH, and a fake's
// watch holds 100 events and panics at the next.
func change(ctx context.Context, client kubernetes.Interface, namespace string) {
	for n := 0; ; n++ {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return
		}
		obj := settings(namespace, rand.IntN(6))
		obj.Data = map[string]string{"change": fmt.Sprint(n)}
		configMaps := client.CoreV1().ConfigMaps(obj.Namespace)
		// Random calls may hit a ConfigMap that exists or not, so errors are expected.
		switch rand.IntN(4) {
		case 0:
			_ = configMaps.Delete(ctx, obj.Name, metav1.DeleteOptions{})
		case 1:
			_, _ = configMaps.Create(ctx, obj, metav1.CreateOptions{})
		default:
			_, _ = configMaps.Update(ctx, obj, metav1.UpdateOptions{})
		}
	}
}
