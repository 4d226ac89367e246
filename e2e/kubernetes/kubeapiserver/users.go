package kubeapiserver

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// User returns a new client configuration for a user in these groups, without a rate limit. The user
// has a client certificate, which is valid for a day, and no rights except those that RBAC gives it.
// The CA of the certificate is that of the server, in CAData.
func (s *Server) User(name string, groups ...string) (*rest.Config, error) {
	certificate, key, err := s.authority.client(name, groups)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", name, err)
	}
	config := s.Config()
	config.BearerToken = ""
	config.CertData, config.KeyData = certificate, key
	return config, nil
}

// ServiceAccount returns a new client configuration for a ServiceAccount, without a rate limit. It
// creates the ServiceAccount if there is none. The configuration has a bearer token, which TokenReview
// knows, and which is valid for an hour or until the ServiceAccount is deleted.
func (s *Server) ServiceAccount(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return nil, err
	}
	accounts := client.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	request, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := s.Config()
	config.BearerToken = request.Status.Token
	return config, nil
}
