package clusters

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
)

// Clients is a [Follower] that has a client for each cluster, such as for what a controller writes. [NewClients] makes one.
type Clients[C any] struct {
	connect func(config *rest.Config) (C, error)

	mu sync.RWMutex
	of map[string]C
}

// NewClients returns a follower that calls connect for each cluster, and again when the cluster has another configuration. connect
// may change config, and must not make requests, as kubernetes.NewForConfig makes none. Give the follower to [New] before those
// of informers, so that a cluster has a client when its first event comes. New returns an error if connect is nil.
func NewClients[C any](connect func(config *rest.Config) (C, error)) *Clients[C] {
	if connect == nil {
		return nil
	}
	return &Clients[C]{connect: connect, of: map[string]C{}}
}

// In returns the client of a cluster, or an error that wraps [informer.ErrNotEngaged] if the cluster is not in the set. It does not
// block, and may be called from any goroutine.
func (c *Clients[C]) In(cluster string) (C, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	client, ok := c.of[cluster]
	if !ok {
		return client, fmt.Errorf("clusters: the client of cluster %q: %w", cluster, informer.ErrNotEngaged)
	}
	return client, nil
}

// Engage makes the client of a cluster. A [Provider] calls it.
func (c *Clients[C]) Engage(name string, config *rest.Config, uid types.UID) error {
	return c.Replace(name, config, uid)
}

// Replace makes another client for a cluster. A [Provider] calls it. If it fails, the cluster keeps the last client.
func (c *Clients[C]) Replace(name string, config *rest.Config, _ types.UID) error {
	client, err := c.connect(config)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[name] = client
	return nil
}

// Disengage drops the client of a cluster. A [Provider] calls it.
func (c *Clients[C]) Disengage(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, name)
	return nil
}
