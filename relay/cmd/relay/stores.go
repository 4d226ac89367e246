package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/relay"
	"github.com/customcacheinformer/informer/store"
	"github.com/customcacheinformer/informer/store/disk"
)

// stores holds the files of the resources. If a resource is prepared again, its file stays open.
type stores struct {
	dir      string
	upstream *rest.Config
	cluster  string // the UID of the API server's cluster, "" before it is known
	files    map[string]*disk.Store
}

// newStores makes the directory and returns stores in it. The caller must call close.
func newStores(dir string, upstream *rest.Config) (*stores, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	return &stores{dir: dir, upstream: upstream, files: map[string]*disk.Store{}}, nil
}

// open opens the file of a resource, unless it is open, and sets r.Store.
func (s *stores) open(ctx context.Context, r *relay.Resource) error {
	if s.cluster == "" {
		config := rest.CopyConfig(s.upstream)
		config.Timeout = 10 * time.Second // other resources wait
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		if s.cluster, err = store.ClusterUID(ctx, client.CoreV1().Namespaces()); err != nil {
			return fmt.Errorf("--data-dir: the files are of one cluster: %w", err)
		}
	}
	name := r.Resource + "." + r.Version + "." + r.Group
	if s.files[name] == nil {
		file, err := disk.Open(filepath.Join(s.dir, name+".db"), example(r), disk.Options{
			Identity: store.Identity{Cluster: s.cluster, Resource: name},
			// A file that the machine's end has spoiled costs one list, and waiting for the disk costs
			// every agent some milliseconds for each change.
			Durability: disk.SurviveProcess,
		})
		if err != nil {
			return fmt.Errorf("--data-dir: %w", err)
		}
		s.files[name] = file
	}
	r.Store = s.files[name]
	return nil
}

func (s *stores) close() error {
	var all []error
	for _, file := range s.files {
		all = append(all, file.Close())
	}
	return errors.Join(all...)
}

func example(r *relay.Resource) runtime.Object {
	kind := r.GroupVersion().WithKind(r.Kind)
	if obj, err := scheme.Scheme.New(kind); err == nil {
		return obj
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	return obj
}
