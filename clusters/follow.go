package clusters

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// Follow returns a [Follower] that makes an informer read the clusters. source makes the source of a cluster from its configuration, for
// example:
//
//	func(config *rest.Config) (cache.ListerWatcher, error) {
//		client, err := kubernetes.NewForConfig(config)
//		if err != nil {
//			return nil, err
//		}
//		return informer.ListWatch(client.CoreV1().Pods("")), nil
//	}
//
// A cluster that the program disengages itself is engaged again when its configuration changes.
//
// source may change config, but must not make requests. Several goroutines may call source at once. When a cluster leaves the set,
// its objects come as deletes, see [informer.LeaveDeleted]. If the informer's Durable has objects of other clusters, these come as
// deletes when the [Provider] has synced. If inf or source is nil, Follow returns nil, and then [New] returns an error.
func Follow[T informer.Object](inf *informer.Clusters[T], source func(config *rest.Config) (cache.ListerWatcher, error)) Follower {
	if inf == nil || source == nil {
		return nil
	}
	return follower[T]{inf, source}
}

type follower[T informer.Object] struct {
	informer *informer.Clusters[T]
	source   func(config *rest.Config) (cache.ListerWatcher, error)
}

func (f follower[T]) Engage(name string, config *rest.Config, uid types.UID) error {
	return f.give(name, config, uid, f.informer.Engage)
}

func (f follower[T]) Replace(name string, config *rest.Config, uid types.UID) error {
	return f.give(name, config, uid, func(name string, from informer.ClusterSource) error {
		err := f.informer.Replace(name, from)
		if errors.Is(err, informer.ErrNotEngaged) { // the program has disengaged it itself
			return f.informer.Engage(name, from)
		}
		return err
	})
}

func (f follower[T]) give(name string, config *rest.Config, uid types.UID, to func(string, informer.ClusterSource) error) error {
	lw, err := f.source(config)
	if err != nil {
		return err
	}
	return to(name, informer.ClusterSource{Source: lw, UID: uid})
}

func (f follower[T]) settle(names []string) {
	_ = f.informer.DisengageStored(informer.LeaveDeleted, names...) // an error means that the informer has stopped
}

func (f follower[T]) Disengage(name string) error {
	_, err := f.informer.Disengage(name, informer.LeaveDeleted)
	if errors.Is(err, informer.ErrNotEngaged) {
		return nil // the program has disengaged it itself
	}
	return err
}
