package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// watchFor is how long a watch lasts, in seconds. The API server asks RBAC when a watch begins, so it
// continues a watch of a user who has lost the right.
const watchFor int64 = 2

// TestANamespaceWhoseRightIsRevokedKeepsItsStateUntilItIsGrantedAgain has a user who may read ConfigMaps in two
// namespaces, and not in a third.
func TestANamespaceWhoseRightIsRevokedKeepsItsStateUntilItIsGrantedAgain(t *testing.T) {
	c := newCluster(t, shared)
	kept, revoked, hidden := c.namespace(), c.namespace(), c.namespace()
	config, err := c.User("reader-of-" + revoked)
	c.ok(err)
	reader := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "reader-of-" + revoked}
	c.grant(kept, reader, may("", "configmaps", "list", "watch"))
	role := c.grant(revoked, reader, may("", "configmaps", "list", "watch"))
	for _, namespace := range []string{kept, revoked, hidden} {
		c.put(namespace, "settings", "1")
		c.put(namespace, "removed", "1")
	}

	client := c.clientset(config).CoreV1().ConfigMaps
	for _, namespace := range []string{kept, revoked} {
		c.await("RBAC grants the right", func() bool {
			_, err := client(namespace).List(c.ctx, metav1.ListOptions{Limit: 1})
			return err == nil
		})
	}

	failures := &failures{}
	inf, err := informer.NewInNamespaces(client, []string{kept, revoked}, informer.Options[*corev1.ConfigMap]{
		ErrorHandler: failures.add,
		Backoff:      &wait.Backoff{Duration: 100 * time.Millisecond, Cap: time.Second, Steps: 10, Factor: 2},
		TweakListOptions: func(opts *metav1.ListOptions) {
			if opts.AllowWatchBookmarks { // which lists do not ask for
				opts.TimeoutSeconds = ptr.To(watchFor)
			}
		},
	})
	c.ok(err)
	events := &informertest.Recorder[*corev1.ConfigMap]{}
	_, err = inf.AddWatcher(events, informer.WatcherOptions{})
	c.ok(err)
	informertest.Run(t, inf)
	events.Expect(t, "added "+kept+"/settings", "added "+kept+"/removed", "added "+revoked+"/settings", "added "+revoked+"/removed")
	failing := func() error {
		for _, h := range inf.Health().Namespaces {
			if h.Namespace == revoked {
				return h.SourceError
			}
		}
		return errors.New("the namespace is not in Health")
	}
	if err := failing(); err != nil {
		t.Error(err)
	}

	c.ok(c.client.RbacV1().RoleBindings(revoked).Delete(c.ctx, role, metav1.DeleteOptions{}))
	c.await("Health names the namespace", func() bool { return apierrors.IsForbidden(failing()) })
	if !failures.name(revoked) || failures.name(kept) {
		t.Errorf("reported: %v", failures)
	}
	for _, namespace := range []string{revoked, kept, hidden} {
		c.put(namespace, "settings", "2")
		c.ok(c.client.CoreV1().ConfigMaps(namespace).Delete(c.ctx, "removed", metav1.DeleteOptions{}))
	}
	events.Expect(t, "updated "+kept+"/settings", "deleted "+kept+"/removed")
	for _, name := range []string{"settings", "removed"} {
		if obj, there, err := inf.Get(types.NamespacedName{Namespace: revoked, Name: name}); err != nil || !there || obj.Data["value"] != "1" {
			t.Errorf("%s of the namespace: %v, %v, %v", name, obj, there, err)
		}
	}
	for _, h := range inf.Health().Namespaces {
		if h.Namespace == kept && h.SourceError != nil {
			t.Errorf("the other namespace fails with %v", h.SourceError)
		}
	}
	events.Expect(t)

	c.bind(revoked, role, reader)
	events.Expect(t, "updated "+revoked+"/settings", "deleted "+revoked+"/removed")
	c.await("Health names the namespace no longer", func() bool { return failing() == nil && inf.Health().Ready() == nil })
	c.put(revoked, "settings", "3")
	events.Expect(t, "updated "+revoked+"/settings")
	events.Expect(t)
}

func (c *cluster) put(namespace, name, value string) {
	c.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
	_, err := c.client.CoreV1().ConfigMaps(namespace).Create(c.ctx, obj, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = c.client.CoreV1().ConfigMaps(namespace).Update(c.ctx, obj, metav1.UpdateOptions{})
	}
	c.ok(err)
}

// failures are the errors that an informer has reported.
type failures struct {
	mu  sync.Mutex // protects all
	all []error
}

func (f *failures) add(_ context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, err)
}

func (f *failures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.all)
}

// name reports whether the meaning of an error is that a namespace may not be read.
func (f *failures) name(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.all {
		var failed *informer.WatchError
		if errors.As(err, &failed) && failed.Namespace == namespace && apierrors.IsForbidden(failed) {
			return true
		}
	}
	return false
}
