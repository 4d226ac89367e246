package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
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
	divided    bool // each replica caches the ConfigMaps of only its own namespaces
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
	stop   func() // waits for the end
}

func newFleet(c *cluster, divided bool) *fleet {
	c.Helper()
	f := &fleet{cluster: c, divided: divided, leases: c.namespace(), calls: newCalls()}
	config, err := c.User(f.leases)
	c.ok(err)
	f.config = config
	user := rbacv1.Subject{Kind: rbacv1.UserKind, Name: f.leases}
	c.grant(f.leases, user, may("coordination.k8s.io", "leases", "get", "list", "watch", "create", "update", "delete"))
	c.grantEverywhere(user, may("", "configmaps", "list", "watch", "update"))
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

// start starts a replica, which runs until stop is called or the test ends. It returns when the replica
// has joined the others.
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
	r.stop = informertest.Run(f.T, group)
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
	return informer.NewFrom(own, informer.Options[*corev1.ConfigMap]{})
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
