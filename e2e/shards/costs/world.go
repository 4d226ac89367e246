package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	random "math/rand/v2"
	"os"
	"os/exec"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/e2e/internal/process"
)

// patience is when a wait is given up.
const patience = 2 * time.Minute

var (
	widgetKind = schema.GroupVersionKind{Group: "shards.example.com", Version: "v1", Kind: "Widget"}
	leaseKind  = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
)

// address is how to reach an API server.
type address struct {
	Host, Token string
	CA          []byte
}

func (a address) config() *rest.Config {
	return &rest.Config{
		Host: a.Host, BearerToken: a.Token, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}, // the server has a stand-in for Leases
	}
}

func addressOf(config *rest.Config) address {
	return address{config.Host, config.BearerToken, config.CAData}
}

// world is the API servers and the objects.
type world struct {
	plan
	server  *apiserver.Server
	beside  *child       // the API server that does not select
	other   *rest.Config // of it
	widgets dynamic.NamespaceableResourceInterface
	leases  dynamic.ResourceInterface
	widget  schema.GroupVersionResource
	size    int // of an object, in JSON
	random  *random.Rand
	changes int     // made so far
	first   figures // of the first replica of a new set, which divides the memory
}

func newWorld(ctx context.Context, p plan) (w *world, err error) {
	if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.ShardedListAndWatch) + "=true"); err != nil {
		return nil, err
	}
	w = &world{plan: p, random: random.New(random.NewPCG(1, 2))}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.server, err = apiserver.Start(ctx); err != nil {
		return nil, err
	}
	if w.widget, err = w.server.Install(ctx, apiserver.Kind{GroupVersionKind: widgetKind}); err != nil {
		return nil, err
	}
	lease, err := w.server.Install(ctx, apiserver.Kind{GroupVersionKind: leaseKind})
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(w.server.Config())
	if err != nil {
		return nil, err
	}
	w.widgets, w.leases = client.Resource(w.widget), client.Resource(lease).Namespace(leasesIn)
	if err := w.fill(ctx); err != nil {
		return nil, err
	}
	return w, w.startBeside(ctx)
}

func (w *world) close() (err error) {
	if w.beside != nil {
		err = w.beside.end()
	}
	if w.server != nil {
		w.server.Stop()
	}
	return err
}

// name returns the namespace and the name of an object.
func (w *world) name(n int) (namespace, name string) {
	return fmt.Sprint("team-", n%w.spaces), fmt.Sprint("widget-", n)
}

// fill makes the objects.
func (w *world) fill(ctx context.Context) error {
	numbers, errs := make(chan int), make(chan error)
	const clients = 16
	for range clients {
		go func() {
			var failed error
			for n := range numbers {
				namespace, name := w.name(n)
				text := make([]byte, 350) // random, because lists are compressed
				_, _ = rand.Read(text)
				obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"text": hex.EncodeToString(text)}}}
				obj.SetGroupVersionKind(widgetKind)
				obj.SetName(name)
				made, err := w.widgets.Namespace(namespace).Create(ctx, obj, metav1.CreateOptions{})
				failed = errors.Join(failed, err)
				if n == 0 && err == nil {
					text, _ := made.MarshalJSON()
					w.size = len(text)
				}
			}
			errs <- failed
		}()
	}
	for n := range w.objects {
		numbers <- n
	}
	close(numbers)
	var err error
	for range clients {
		err = errors.Join(err, <-errs)
	}
	return err
}

// change changes objects at the speed of the plan.
func (w *world) change(ctx context.Context) error {
	ticker := time.NewTicker(time.Second / time.Duration(w.writes))
	defer ticker.Stop()
	for range int(w.during.Seconds() * float64(w.writes)) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		w.changes++ // a patch that says the same again would change nothing
		namespace, name := w.name(w.random.IntN(w.objects))
		if _, err := w.widgets.Namespace(namespace).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"tick":%d}`, w.changes), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// child is this program in another role, in a process of its own.
type child struct {
	*process.Process
	in      io.WriteCloser
	answers *json.Decoder
	proxy   *apiserver.Proxy // nil for an API server
}

func startChild(role, argument string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, role, argument)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	started, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &child{Process: started, in: in, answers: json.NewDecoder(bufio.NewReader(out))}, nil
}

// ask sends a line and reads the answer.
func (c *child) ask(question string) (f figures, err error) {
	if _, err := fmt.Fprintln(c.in, question); err != nil {
		return f, fmt.Errorf("%w\n%s", err, c.Log)
	}
	if err := c.answers.Decode(&f); err != nil {
		return f, fmt.Errorf("%w\n%s", err, c.Log)
	}
	if c.proxy != nil {
		f.Received = float64(c.proxy.Sent())
	}
	return f, nil
}

// end has the process end by itself.
func (c *child) end() error {
	_ = c.in.Close()
	var err error
	select {
	case <-c.Ended():
	case <-time.After(patience):
		err = fmt.Errorf("a process does not end:\n%s", c.Log)
		c.Kill()
	}
	if c.proxy != nil {
		c.proxy.Close()
	}
	return err
}

// startBeside starts the API server that does not select.
func (w *world) startBeside(ctx context.Context) (err error) {
	if w.beside, err = startChild("apiserver", w.server.Storage()); err != nil {
		return err
	}
	var at address
	if err := w.beside.answers.Decode(&at); err != nil {
		return fmt.Errorf("%w\n%s", err, w.beside.Log)
	}
	w.other = at.config()
	client, err := dynamic.NewForConfig(w.other)
	if err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		for _, kind := range []schema.GroupVersionResource{w.widget, leaseKind.GroupVersion().WithResource("leases")} {
			_, err := client.Resource(kind).List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: "0"})
			if err != nil {
				return false, nil //nolint:nilerr // the server is still starting
			}
		}
		return true, nil
	})
}

// serveBeside is an API server until the standard input ends.
func serveBeside(storage string) error {
	server, err := apiserver.StartBeside(context.Background(), storage)
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := json.NewEncoder(os.Stdout).Encode(addressOf(server.Config())); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
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
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
