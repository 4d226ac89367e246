package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/customcacheinformer/informer/e2e/apiserver"
)

// This many goroutines create objects, or update them, at the same time.
const creators, writers = 8, 4

// widgets is the resource of widgetKind, a custom resource.
var (
	widgetKind = schema.GroupVersionKind{Group: "bench.example.com", Version: "v1", Kind: "Widget"}
	widgets    = widgetKind.GroupVersion().WithResource("widgets")
)

// isChild reports whether this process must run the API server.
func isChild(args []string) bool { return len(args) == 3 && args[1] == childArgument }

// beChild is the main function of the API server's process. It serves requests until its input
// ends. The input also ends when the parent process dies, for any reason.
func beChild(in io.Reader, out io.Writer, kubeconfig string) error {
	signal.Ignore(os.Interrupt) // the terminal sends it to the parent too
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	requests := make(chan request)
	go func() { // nobody waits for this goroutine: the process ends with its input
		readRequests(in, requests)
		cancel() // cancels the current operation
	}()
	server, err := apiserver.Start(ctx)
	if err != nil {
		return answer(out, err)
	}
	defer server.Stop()
	w, err := newWriting(ctx, server)
	if err == nil {
		err = writeKubeconfig(server.Config(), kubeconfig)
	}
	if err := answer(out, err); err != nil {
		return err
	}
	for r := range requests {
		if err := answer(out, w.serve(ctx, r)); err != nil {
			return err
		}
	}
	return nil
}

// readRequests passes on requests until the input ends.
func readRequests(in io.Reader, requests chan<- request) {
	defer close(requests)
	for decoder := json.NewDecoder(in); ; {
		var r request
		if decoder.Decode(&r) != nil {
			return
		}
		requests <- r
	}
}

func answer(out io.Writer, failed error) error {
	var r reply
	if failed != nil {
		r.Error = failed.Error()
	}
	return json.NewEncoder(out).Encode(r)
}

// writeKubeconfig writes a kubeconfig for the API server to a file.
func writeKubeconfig(c *rest.Config, file string) error {
	const name = "bench"
	config := api.NewConfig()
	config.Clusters[name] = &api.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos[name] = &api.AuthInfo{Token: c.BearerToken}
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, file)
}

// writing creates and updates objects at the API server.
type writing struct {
	client  dynamic.ResourceInterface
	objects int
	size    atomic.Int64 // every update writes a new size, because an unchanged object would make no event
}

func newWriting(ctx context.Context, server *apiserver.Server) (*writing, error) {
	if _, err := server.Install(ctx, apiserver.Kind{GroupVersionKind: widgetKind}); err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		return nil, err
	}
	return &writing{client: client.Resource(widgets).Namespace("default")}, nil
}

func (w *writing) serve(ctx context.Context, r request) error {
	switch r.Op {
	case opCreate:
		w.objects = r.Count
		return divide(r.Count, creators, func(i int) error {
			_, err := w.client.Create(ctx, widget(i), metav1.CreateOptions{})
			return err
		})
	case opUpdate:
		return divide(r.Count, writers, func(i int) error {
			patch := fmt.Appendf(nil, `{"spec":{"size":%d}}`, w.size.Add(1))
			_, err := w.client.Patch(ctx, widgetName(i%w.objects), types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	}
	return fmt.Errorf("unknown operation %q", r.Op)
}

// divide calls do for 0 to n-1 from several goroutines, and returns their errors.
func divide(n, goroutines int, do func(i int) error) error {
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < n && errs[g] == nil; i += goroutines {
				errs[g] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func widgetName(i int) string { return fmt.Sprintf("widget-%06d", i) }

// widget returns an object of about 1 KiB in 20 fields.
func widget(i int) *unstructured.Unstructured {
	fields := map[string]any{"size": int64(0)}
	for f := range 20 {
		fields[fmt.Sprintf("field%02d", f)] = strings.Repeat("x", 32)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	obj.SetGroupVersionKind(widgetKind)
	obj.SetName(widgetName(i))
	obj.SetLabels(map[string]string{"app": widgetName(i)})
	return obj
}
