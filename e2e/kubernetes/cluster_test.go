package kubernetes_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/kubernetes/kubeapiserver"
)

// cluster is an API server as its administrator sees it.
type cluster struct {
	*testing.T
	*kubeapiserver.Server
	client kubernetes.Interface
	ctx    context.Context // ends with the test, or when patience is over
}

func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a whole kube-apiserver: make soak")
	}
}

// newCluster returns the cluster of a server. With -short, it skips the test instead.
func newCluster(t *testing.T, server *kubeapiserver.Server) *cluster {
	t.Helper()
	skipIfShort(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	c := &cluster{T: t, Server: server, ctx: ctx}
	c.client = c.clientset(server.Config())
	return c
}

// clientset returns a client that asks for protobuf.
func (c *cluster) clientset(config *rest.Config) kubernetes.Interface {
	c.Helper()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	c.ok(err)
	return client
}

// namespace makes a namespace, and returns its name, which no other test has.
func (c *cluster) namespace() string {
	c.Helper()
	made, err := c.client.CoreV1().Namespaces().Create(c.ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	c.ok(err)
	return made.Name
}

func (c *cluster) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// await waits until done returns true. The API server runs in real time.
func (c *cluster) await(what string, done func() bool) {
	c.Helper()
	for !done() {
		select {
		case <-c.ctx.Done():
			c.Fatalf("waiting until %s: %v", what, context.Cause(c.ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
