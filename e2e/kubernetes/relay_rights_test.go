package kubernetes_test

import (
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestTheRelayAsksTheAPIServerForTheNameAndTheRightsOfAClient(t *testing.T) {
	c := newCluster(t, shared)
	namespace, other := c.namespace(), c.namespace()
	address := c.relayOf("pods", "configmaps")
	account, err := c.ServiceAccount(c.ctx, namespace, "agent")
	c.ok(err)
	certified, err := c.User("carol", "agents")
	c.ok(err)
	clients := map[string]*rest.Config{
		"a ServiceAccount with a token": at(address, account),
		"a user with a certificate":     at(address, certified),
	}
	for name, config := range clients {
		if _, err := typed(t, config).CoreV1().Pods(namespace).List(c.ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s without a right: %v", name, err)
		}
	}
	roles := []string{
		c.grant(namespace, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "agents"}, may("", "pods", "get", "list", "watch")),
		c.grant(namespace, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + namespace}, may("", "pods", "get", "list", "watch")),
	}
	for name, config := range clients {
		client := typed(t, config)
		c.await(name+" may list", func() bool {
			_, err := client.CoreV1().Pods(namespace).List(c.ctx, metav1.ListOptions{})
			return err == nil
		})
		if _, err := client.CoreV1().Pods(other).List(c.ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s in another namespace: %v", name, err)
		}
		if _, err := client.CoreV1().ConfigMaps(namespace).List(c.ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s of another resource: %v", name, err)
		}
	}
	unnamed := rest.CopyConfig(address)
	if _, err := typed(t, unnamed).CoreV1().Pods(namespace).List(c.ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without credentials: %v", err)
	}
	unnamed.BearerToken = "no token"
	if _, err := typed(t, unnamed).CoreV1().Pods(namespace).List(c.ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("with an unknown token: %v", err)
	}
	c.revoked(typed(t, clients["a user with a certificate"]).CoreV1().Pods(namespace), namespace, roles[0])
}

// revoked takes a right away, and checks that it ends in the relay, also for a watch that is open.
func (c *cluster) revoked(pods podReader, namespace, role string) {
	c.Helper()
	list, err := pods.List(c.ctx, metav1.ListOptions{})
	c.ok(err)
	open, err := pods.Watch(c.ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	c.ok(err)
	defer open.Stop()
	c.ok(c.client.RbacV1().RoleBindings(namespace).Delete(c.ctx, role, metav1.DeleteOptions{}))
	begun := time.Now()
	c.await("the right ends", func() bool {
		_, err := pods.List(c.ctx, metav1.ListOptions{})
		return apierrors.IsForbidden(err)
	})
	c.Logf("a list is refused %v after the right was revoked; answers are cached for %v", time.Since(begun).Round(time.Millisecond), allowed)
	for range open.ResultChan() { // until the relay ends the watch
	}
	c.Logf("the watch ended %v after the right was revoked; watches last for %v to %v", time.Since(begun).Round(time.Millisecond), watches, 2*watches)
	if again, err := pods.Watch(c.ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion}); err == nil {
		again.Stop()
		c.Error("a new watch begins without a right")
	}
}

func TestNoSecretIsServedUnlessItIsAllowed(t *testing.T) {
	c := newCluster(t, shared)
	address := at(c.relayOf("pods"), c.Config())
	if _, err := typed(t, address).CoreV1().Secrets("default").List(c.ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Secrets: %v, want not found", err)
	}
}
