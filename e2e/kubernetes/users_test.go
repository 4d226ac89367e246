package kubernetes_test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The tests of this file are about the answers that a component with delegated authentication and
// authorization gets. The tests of such components belong next to them.

func TestTokenReviewKnowsServiceAccounts(t *testing.T) {
	c := newCluster(t, shared)
	namespace := c.namespace()
	config, err := c.ServiceAccount(c.ctx, namespace, "agent")
	c.ok(err)
	review := func(token string) authenticationv1.TokenReviewStatus {
		answer, err := c.client.AuthenticationV1().TokenReviews().Create(c.ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		c.ok(err)
		return answer.Status
	}
	want := "system:serviceaccount:" + namespace + ":agent"
	if got := review(config.BearerToken); !got.Authenticated || got.User.Username != want {
		t.Errorf("the token of a ServiceAccount: %+v", got)
	}
	if got := review("no token"); got.Authenticated {
		t.Errorf("another text: %+v", got)
	}
	c.ok(c.client.CoreV1().ServiceAccounts(namespace).Delete(c.ctx, "agent", metav1.DeleteOptions{}))
	c.await("the token of a deleted ServiceAccount is refused", func() bool { return !review(config.BearerToken).Authenticated })
}

func TestUsersWithCertificatesHaveTheRightsOfRBAC(t *testing.T) {
	c := newCluster(t, shared)
	namespace, other := c.namespace(), c.namespace()
	config, err := c.User("alice", "readers")
	c.ok(err)
	alice := c.clientset(config)
	self, err := alice.AuthenticationV1().SelfSubjectReviews().Create(c.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	c.ok(err)
	if got := self.Status.UserInfo; got.Username != "alice" || got.Groups[0] != "readers" {
		t.Errorf("the server takes the user for %+v", got)
	}
	if _, err := alice.CoreV1().Pods(namespace).List(c.ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without a right, List returns %v", err)
	}
	c.grant(namespace, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "readers"}, may("", "pods", "list"))
	c.await("the right is given", func() bool {
		_, err := alice.CoreV1().Pods(namespace).List(c.ctx, metav1.ListOptions{})
		return err == nil
	})
	for _, at := range []struct {
		namespace string
		allowed   bool
	}{{namespace, true}, {other, false}} {
		answer, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(c.ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "alice", Groups: []string{"readers"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: at.namespace, Verb: "list", Resource: "pods"},
			},
		}, metav1.CreateOptions{})
		c.ok(err)
		if answer.Status.Allowed != at.allowed {
			t.Errorf("SubjectAccessReview in %s: %+v", at.namespace, answer.Status)
		}
	}
}
