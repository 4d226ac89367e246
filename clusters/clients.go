package clusters

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
)

// Clients is a [Follower] that keeps a client for each cluster, for example for the writes of a controller. [NewClients] makes
// one. Its methods may be called from any goroutine.
type Clients[C any] struct {
	connect func(config *rest.Config) (C, error)

	mu sync.RWMutex
	of map[string]C
}

// NewClients returns a follower that calls connect for each cluster, and again when the configuration of the cluster changes.
// connect may change config, but must not make requests; kubernetes.NewForConfig makes none. Several goroutines may call connect at
// once. Pass this follower to [New] before the followers of informers, so that a cluster has a client when its first event comes. If
// connect is nil, NewClients returns nil, and then New returns an error.
func NewClients[C any](connect func(config *rest.Config) (C, error)) *Clients[C] {
	if connect == nil {
		return nil
	}
	return &Clients[C]{connect: connect, of: map[string]C{}}
}

// In returns the client of a cluster. It returns an error that wraps [informer.ErrNotEngaged] if the cluster has no client. It
// does not block.
func (c *Clients[C]) In(cluster string) (C, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	client, ok := c.of[cluster]
	if !ok {
		return client, fmt.Errorf("clusters: the client of cluster %q: %w", cluster, informer.ErrNotEngaged)
	}
	return client, nil
}

// Engage calls connect to make the client of a cluster. If connect returns an error, Engage returns that error, and the cluster
// has no client. A [Provider] calls Engage.
func (c *Clients[C]) Engage(name string, config *rest.Config, uid types.UID) error {
	return c.Replace(name, config, uid)
}

// Replace calls connect to make a new client for a cluster whose configuration has changed. If connect returns an error, Replace
// returns that error, and the cluster keeps its last client. A [Provider] calls Replace.
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

// Disengage drops the client of a cluster, and returns nil. A [Provider] calls Disengage.
func (c *Clients[C]) Disengage(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, name)
	return nil
}
