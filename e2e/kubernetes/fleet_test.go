package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/shards"
)

// The data of a ConfigMap. A replica copies wanted to done.
const (
	wanted = "wanted"
	done   = "done"
)

// fleet is the replicas of a controller of ConfigMaps, in one process.
type fleet struct {
	*cluster
	divided    bool // each replica caches the ConfigMaps of its own namespaces alone
	config     *rest.Config
	leases     string // the namespace of the Leases, which is the name of the set, too
	namespaces []string
	calls      *calls
}

// replica is one of them.
type replica struct {
	name   string
	set    *shards.Set
	inf    *informer.CustomCacheInformer[*corev1.ConfigMap]
	client kubernetes.Interface
	calls  *calls
	stop   func() error // waits for the end
}

func newFleet(c *cluster, divided bool) *fleet {
	c.Helper()
	f := &fleet{cluster: c, divided: divided, leases: c.namespace(), calls: newCalls()}
	config, err := c.User(f.leases)
	c.ok(err)
	f.config = config
	user := rbacv1.Subject{Kind: rbacv1.UserKind, Name: f.leases}
	c.grant(f.leases, user, "coordination.k8s.io", "leases", "get", "list", "watch", "create", "update", "delete")
	c.grantEverywhere(user, "", "configmaps", "get", "list", "watch", "update")
	for range 12 {
		namespace := c.namespace()
		f.namespaces = append(f.namespaces, namespace)
		for n := range 10 {
			_, err := c.client.CoreV1().ConfigMaps(namespace).Create(c.ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("config-%d", n)},
				Data:       map[string]string{wanted: "first"},
			}, metav1.CreateOptions{})
			c.ok(err)
		}
	}
	return f
}

// start starts a replica, and stops it at the end of the test.
func (f *fleet) start(name string) *replica {
	f.Helper()
	r := &replica{name: name, client: f.clientset(rest.CopyConfig(f.config)), calls: f.calls}
	var err error
	r.set, err = shards.New(r.client.CoordinationV1().Leases(f.leases), shards.Options{
		Name: f.leases, Identity: name, ByNamespace: f.divided,
	})
	f.ok(err)
	r.inf, err = f.cache(r)
	f.ok(err)
	controller, err := enqueue.NewController(r.reconcile, enqueue.Options{Name: "copy", Workers: 4, Shards: r.set}, enqueue.For(r.inf))
	f.ok(err)
	group := &informer.Group{}
	f.ok(errors.Join(group.Add(r.inf), group.Add(controller), group.Add(r.set)))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { err = group.Run(ctx) })
	r.stop = sync.OnceValue(func() error {
		cancel()
		running.Wait()
		return err
	})
	f.Cleanup(func() {
		if err := r.stop(); err != nil {
			f.Errorf("replica %s: %v", name, err)
		}
	})
	return r
}

// cache returns an informer over all ConfigMaps, or over those of the replica's namespaces.
func (f *fleet) cache(r *replica) (*informer.CustomCacheInformer[*corev1.ConfigMap], error) {
	all := informer.ListWatch(r.client.CoreV1().ConfigMaps(""))
	if !f.divided {
		return informer.NewFrom(all, informer.Options[*corev1.ConfigMap]{})
	}
	own, err := r.set.Source(all)
	if err != nil {
		return nil, err
	}
	return informer.NewDivided(own, informer.Options[*corev1.ConfigMap]{})
}

// reconcile copies a value, from one field of a ConfigMap to another.
func (r *replica) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	defer r.calls.begin(key, r.name)()
	obj, there, err := r.inf.Get(key)
	if err != nil {
		return 0, err
	}
	if !there {
		r.calls.noteGone(key)
		return 0, nil
	}
	if obj.Data[wanted] == obj.Data[done] {
		return 0, nil
	}
	obj = obj.DeepCopy()
	obj.Data[done] = obj.Data[wanted]
	_, err = r.client.CoreV1().ConfigMaps(key.Namespace).Update(ctx, obj, metav1.UpdateOptions{})
	return 0, err
}

// calls has the calls of reconcile of all replicas.
type calls struct {
	mu       sync.Mutex                      // protects the rest
	under    map[types.NamespacedName]string // the replica of the call that is under way
	last     map[types.NamespacedName]string // the replica of the last call
	gone     map[types.NamespacedName]bool   // keys of calls that found no object
	count    map[string]int                  // by replica
	overlaps []string
}

func newCalls() *calls {
	return &calls{
		under: map[types.NamespacedName]string{}, last: map[types.NamespacedName]string{},
		gone: map[types.NamespacedName]bool{}, count: map[string]int{},
	}
}

// begin notes that a replica's call begins. The function that it returns notes the end.
func (c *calls) begin(key types.NamespacedName, replica string) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, busy := c.under[key]; busy {
		c.overlaps = append(c.overlaps, fmt.Sprintf("%v: %s begins while %s is at work", key, replica, other))
	}
	c.under[key], c.last[key] = replica, replica
	c.count[replica]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.under, key)
	}
}

func (c *calls) noteGone(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[key] = true
}

// of returns the number of calls of a replica.
func (c *calls) of(replica string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[replica]
}

// foundGone reports whether a call has found no object for the key.
func (c *calls) foundGone(key types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone[key]
}
