package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/customcacheinformer/informer/relay"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

// stores are open files.
type stores []*disk.Store

// openStores gives each resource a file in dir. The caller must close the stores that are returned,
// also with an error.
func openStores(ctx context.Context, dir string, opts *relay.Options) (stores, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	client, err := kubernetes.NewForConfig(opts.Upstream)
	if err != nil {
		return nil, err
	}
	cluster, err := store.ClusterUID(ctx, client.CoreV1().Namespaces())
	if err != nil {
		return nil, fmt.Errorf("--data-dir: the files are of one cluster: %w", err)
	}
	var all stores
	for i := range opts.Resources {
		r := &opts.Resources[i]
		name := r.Resource + "." + r.Version + "." + r.Group
		store, err := disk.Open(filepath.Join(dir, name+".db"), example(r), disk.Options{
			Identity: store.Identity{Cluster: cluster, Resource: name},
			// A file that the machine's end has spoiled costs one list, and waiting for the disk costs
			// every agent some milliseconds for each change.
			Durability: disk.SurviveProcess,
		})
		if err != nil {
			return all, fmt.Errorf("--data-dir: %w", err)
		}
		all = append(all, store)
		r.Store = store
	}
	return all, nil
}

// close closes the stores.
func (s stores) close() error {
	var all []error
	for _, store := range s {
		all = append(all, store.Close())
	}
	return errors.Join(all...)
}

// example returns an empty object of the resource.
func example(r *relay.Resource) runtime.Object {
	kind := r.GroupVersion().WithKind(r.Kind)
	if obj, err := scheme.Scheme.New(kind); err == nil {
		return obj
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	return obj
}
