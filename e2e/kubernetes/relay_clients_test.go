package kubernetes_test

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
)

// podReader is the part of a client that may be used at a relay.
type podReader interface {
	List(context.Context, metav1.ListOptions) (*corev1.PodList, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// TestUnmodifiedClientsOfPodsWorkAtTheRelay has the clients that operators use, with protobuf, metadata
// and Tables, over a real kube-apiserver.
func TestUnmodifiedClientsOfPodsWorkAtTheRelay(t *testing.T) {
	c := newCluster(t, shared)
	namespace := c.namespace()
	address := at(c.relayOf("pods", "configmaps"), c.Config())
	for i := range 20 {
		c.pod(namespace, fmt.Sprint("p", i), fmt.Sprint("node-", i%2))
	}
	client := typed(t, address)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	shared := factory.Core().V1().Pods()
	shared.Informer()
	ctx, cancel := context.WithCancel(c.ctx)
	defer factory.Shutdown()
	defer cancel()
	factory.Start(ctx.Done())

	ours, err := informer.New(client.CoreV1().Pods(namespace), informer.Options[*corev1.Pod]{
		TweakListOptions: func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName=node-1" },
	})
	c.ok(err)
	done := make(chan error, 1)
	go func() { done <- ours.Run(ctx) }()
	defer func() {
		cancel()
		c.ok(<-done)
	}()

	events := c.kubectl(address, "get", "pods", "-n", namespace, "--watch", "-o", "name")
	c.ok(c.client.CoreV1().Pods(namespace).Delete(c.ctx, "p1", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	c.pod(namespace, "late", "node-1")
	late := types.NamespacedName{Namespace: namespace, Name: "late"}
	c.await("client-go's informer and this one have the Pods", func() bool {
		_, theirs := shared.Lister().Pods(namespace).Get(late.Name)
		_, found, err := ours.Get(late)
		return theirs == nil && found && err == nil
	})
	all, err := shared.Lister().Pods(namespace).List(labels.Everything())
	if objects := ours.Health().Objects; err != nil || len(all) != 20 || objects != 10 {
		t.Errorf("client-go's informer has %d Pods (%v), the informer of node-1 %d", len(all), err, objects)
	}
	c.awaitLine(events, "pod/late")

	table := c.kubectl(address, "get", "pods", "-n", namespace)
	c.awaitLine(table, "late")

	partial, err := metadata.NewForConfig(address)
	c.ok(err)
	list, err := partial.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(namespace).List(c.ctx, metav1.ListOptions{Limit: 7})
	c.ok(err)
	if len(list.Items) != 7 || list.Continue == "" || *list.RemainingItemCount != 13 {
		t.Errorf("metadata of %d Pods, continue %q, remaining %v", len(list.Items), list.Continue, list.RemainingItemCount)
	}
	gone, err := client.CoreV1().Pods(namespace).Watch(c.ctx, metav1.ListOptions{ResourceVersion: "1"})
	if err == nil { // then the answer is the first event
		err = apierrors.FromObject((<-gone.ResultChan()).Object)
		gone.Stop()
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from a version that is gone: %v", err)
	}
	if err := client.CoreV1().Pods(namespace).Delete(c.ctx, "late", metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a delete: %v", err)
	}
}

func (c *cluster) pod(namespace, name, node string) {
	c.Helper()
	_, err := c.client.CoreV1().Pods(namespace).Create(c.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	c.ok(err)
}

// kubectl runs kubectl with the configuration until the end of the test, and returns its lines.
func (c *cluster) kubectl(config *rest.Config, args ...string) <-chan string {
	c.Helper()
	dir := c.TempDir()
	program, err := process.Build(c.ctx, dir, "github.com/customcacheinformer/informer/e2e/kubernetes/kubectl", "-race=false", "-ldflags=-s -w")
	c.ok(err)
	file := filepath.Join(dir, "kubeconfig")
	c.ok(apiserver.WriteKubeconfig(config, file))
	cmd := exec.Command(program, append([]string{"--kubeconfig", file, "--cache-dir", dir}, args...)...)
	out, err := cmd.StdoutPipe()
	c.ok(err)
	started, err := process.Start(cmd)
	c.ok(err)
	lines, read := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(read)
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	c.Cleanup(func() {
		started.Kill()
		<-read
		if c.Failed() {
			c.Logf("kubectl %s: %s", strings.Join(args, " "), started.Log)
		}
	})
	return lines
}

// awaitLine waits for a line that begins with a text.
func (c *cluster) awaitLine(lines <-chan string, want string) {
	c.Helper()
	for {
		select {
		case line, open := <-lines:
			if !open {
				c.Fatalf("kubectl exited without a line %q", want)
			}
			if strings.HasPrefix(line, want) {
				c.Logf("kubectl: %s", line)
				return
			}
		case <-time.After(patience):
			c.Fatalf("kubectl prints no line %q", want)
		}
	}
}
