package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/internal/process"
	"github.com/customcacheinformer/informer/internal/lab"
)

const (
	namespace  = "default"
	annotation = "tick" // the number and the time of a write
)

// crowd is the watchers of a process.
type crowd struct {
	Server                process.Address
	Watchers, Connections int
	After                 int // the number of the last change before they watch
}

// counted returns a client configuration for protobuf. Each has connections of its own, and adds the bytes that it
// receives to a count.
func counted(at process.Address, received *count) *rest.Config {
	config := at.Config()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	config.Dial = received.dial
	return config
}

// count counts the bytes that connections receive.
type count struct{ atomic.Int64 }

func (c *count) dial(ctx context.Context, network, to string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, to)
	return &countedConn{conn, c}, err
}

type countedConn struct {
	net.Conn
	received *count
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

// world is the API server and the Pods.
type world struct {
	plan
	api     *lab.Child
	at      process.Address
	pods    typedcore.PodInterface
	size    int // of a Pod, in protobuf
	changes int // made so far
}

func newWorld(ctx context.Context, p plan) (w *world, err error) {
	w = &world{plan: p}
	api, config, err := process.StartServer(ctx, "apiserver", struct{}{})
	if err != nil {
		return nil, err
	}
	w.api, w.at = api, process.AddressOf(config)
	client, err := typedcore.NewForConfig(counted(w.at, &count{}))
	if err == nil {
		w.pods = client.Pods(namespace)
		err = lab.Divide(w.objects, 8, func(n int) error { return w.create(ctx, n) })
	}
	if err != nil {
		return nil, errors.Join(err, w.api.End())
	}
	return w, nil
}

// create creates a Pod.
func (w *world) create(ctx context.Context, n int) error {
	text := make([]byte, 250) // random, because lists are compressed
	_, _ = rand.Read(text)
	pod, err := w.pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", n), Labels: map[string]string{"app": fmt.Sprint("app-", n%50)}},
		Spec: corev1.PodSpec{
			NodeName:   fmt.Sprint("node-", n%100),
			Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/app", Args: []string{hex.EncodeToString(text)}}},
		},
	}, metav1.CreateOptions{})
	if n == 0 {
		w.size = pod.Size()
	}
	return err
}

// change changes the next Pod.
func (w *world) change(ctx context.Context) error {
	w.changes++
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d %d"}}}`, annotation, w.changes, time.Now().UnixNano())
	_, err := w.pods.Patch(ctx, fmt.Sprint("pod-", w.changes%w.objects), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
