package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// patience is when a wait is given up.
	patience   = 5 * time.Minute
	namespace  = "default"
	annotation = "tick" // the number and the time of a write
)

var processors = runtime.NumCPU()

// address is how to reach a server, and for watchers how many they are.
type address struct {
	Host, Token string
	CA          []byte

	Watchers, Connections int
	After                 int // the number of the last change before they watch
}

// config returns a client configuration. Each has connections of its own, and adds the bytes that it
// receives to a count.
func (a address) config(received *count) *rest.Config {
	return &rest.Config{
		Host: a.Host, BearerToken: a.Token, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA}, QPS: -1,
		ContentConfig: rest.ContentConfig{
			ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf",
		},
		Dial: received.dial,
	}
}

// world is the API server and the Pods.
type world struct {
	plan
	api     *child
	at      address
	pods    typedcore.PodInterface
	size    int // of a Pod, in protobuf
	changes int // made so far
}

func newWorld(ctx context.Context, p plan) (w *world, err error) {
	w = &world{plan: p}
	if w.api, w.at, err = startServer("apiserver", "-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	client, err := typedcore.NewForConfig(w.at.config(&count{}))
	if err != nil {
		return nil, err
	}
	w.pods = client.Pods(namespace)
	return w, w.fill(ctx)
}

func (w *world) close() error { return w.api.end() }

// fill makes the Pods.
func (w *world) fill(ctx context.Context) error {
	for n := range w.objects {
		text := make([]byte, 250) // random, because lists are compressed
		_, _ = rand.Read(text)
		pod, err := w.pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", n), Labels: map[string]string{"app": fmt.Sprint("app-", n%50)}},
			Spec: corev1.PodSpec{
				NodeName:   fmt.Sprint("node-", n%100),
				Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/app", Args: []string{hex.EncodeToString(text)}}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		w.size = pod.Size()
	}
	return nil
}

// change changes Pods at the speed of the plan.
func (w *world) change(ctx context.Context) error {
	ticker := time.NewTicker(time.Second / time.Duration(w.writes))
	defer ticker.Stop()
	for range int(w.during.Seconds() * float64(w.writes)) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		w.changes++
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			annotation: fmt.Sprint(w.changes, " ", time.Now().UnixNano()),
		}}})
		if err != nil {
			return err
		}
		name := fmt.Sprint("pod-", w.changes%w.objects)
		if _, err := w.pods.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// poll waits until there returns true.
func poll(ctx context.Context, there func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("that takes too long"))
	defer cancel()
	for {
		if ok, err := there(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
