// Command demo runs the quickstart against a real Kubernetes API server with a real etcd,
// inside this process. It keeps changing Pods, which nothing runs. It writes a kubeconfig, with
// which other examples can use the server at the same time. It needs no cluster and leaves
// nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
)

const quickstart = "github.com/customcacheinformer/informer/examples/quickstart"

func main() {
	duration := flag.Duration("duration", 4*time.Second, "how long to watch")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *duration)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, duration time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := process.Build(ctx, dir, quickstart)
	if err != nil {
		return err
	}
	server, err := apiserver.StartWithPods(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := apiserver.WriteKubeconfig(server.Config(), kubeconfig); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		return err
	}
	fmt.Printf("A Kubernetes API server is running at %s. Another example for it, for as long as it runs:\n\n"+
		"    go run ./examples/nodeagent -kubeconfig %s -node node-0 -http localhost:8080\n"+
		"    curl localhost:8080/pods/%s\n\n", server.Config().Host, kubeconfig, address(0))

	changing, cancel := context.WithCancel(ctx)
	var churning sync.WaitGroup
	churning.Go(func() { churn(changing, client.CoreV1().Pods("default")) })
	defer churning.Wait()
	defer cancel()

	watching := exec.CommandContext(ctx, program, "-kubeconfig", kubeconfig, "-duration", duration.String())
	watching.Stdout, watching.Stderr = os.Stdout, os.Stderr
	// Without this, it would be killed, and could not show its table.
	watching.Cancel = func() error { return watching.Process.Signal(os.Interrupt) }
	watching.WaitDelay = time.Minute
	return watching.Run()
}

func address(n int) string { return fmt.Sprintf("10.0.0.%d", n+1) }

// churn creates, changes and deletes Pods until ctx ends.
func churn(ctx context.Context, pods typedcorev1.PodInterface) {
	for change := 0; ctx.Err() == nil; change++ {
		// Errors are expected: whether the Pod exists is left to chance. The first Pod stays.
		if n := rand.IntN(6); n > 0 && rand.IntN(4) == 0 {
			now := int64(0)
			_ = pods.Delete(ctx, fmt.Sprintf("web-%d", n), metav1.DeleteOptions{GracePeriodSeconds: &now})
		} else {
			_ = apply(ctx, pods, n, change)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// apply changes the n-th Pod. If there is none, it creates it, and sets its status as a kubelet
// does.
func apply(ctx context.Context, pods typedcorev1.PodInterface, n, change int) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", n), Labels: map[string]string{"change": fmt.Sprint(change)}},
		Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", n%2)},
	}
	if _, err := pods.Update(ctx, pod, metav1.UpdateOptions{}); err == nil {
		return nil
	}
	created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: address(n)}}}
	_, err = pods.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}
