package kubernetes_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/customcacheinformer/informer/e2e/apiserver"
	"github.com/customcacheinformer/informer/relay"
)

// The authorization of the tests' relay is cached for allowed, and its watches last for watches to
// twice as long.
const (
	allowed = time.Second
	watches = 3 * time.Second
)

// relayOf runs a relay of the API server until the end of the test. It has the rights that
// relay/deploy gives it, and no others. relayOf returns a configuration with the address of the relay
// and no credentials.
func (c *cluster) relayOf(resources ...string) *rest.Config {
	c.Helper()
	identity, err := c.User("relay")
	c.ok(err)
	c.permitRelay()
	c.await("the relay has its rights", func() bool {
		_, err := typed(c.T, identity).CoreV1().ConfigMaps("kube-system").Get(c.ctx, "extension-apiserver-authentication", metav1.GetOptions{})
		return err == nil
	})
	file := filepath.Join(c.TempDir(), "kubeconfig")
	c.ok(apiserver.WriteKubeconfig(identity, file))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	c.ok(err)
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	c.ok(err)
	serving, err := dynamiccertificates.NewStaticCertKeyContent("serving", certificate, key)
	c.ok(err)
	authentication, authorization := genericoptions.NewDelegatingAuthenticationOptions(), genericoptions.NewDelegatingAuthorizationOptions()
	authentication.RemoteKubeConfigFile, authorization.RemoteKubeConfigFile = file, file
	authentication.CacheTTL = allowed
	authorization.AllowCacheTTL, authorization.DenyCacheTTL = allowed, allowed
	served, err := relay.Discover(identity, resources...)
	c.ok(err)
	r, err := relay.New(relay.Options{
		Upstream: identity, Resources: served, Authentication: authentication, Authorization: authorization, MinWatchTimeout: watches,
		Serving: (&genericoptions.SecureServingOptions{
			Listener: listener, BindAddress: net.ParseIP("127.0.0.1"), ServerCert: genericoptions.GeneratableKeyCert{GeneratedCert: serving},
		}).WithLoopback(),
	})
	c.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	c.Cleanup(sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.Errorf("the relay: %v", err)
		}
	}))
	c.await("the relay is ready", func() bool { return r.Ready() == nil })
	return &rest.Config{Host: "https://" + listener.Addr().String(), QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: certificate}}
}

// permitRelay gives the user relay its rights.
func (c *cluster) permitRelay() {
	c.Helper()
	user := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "relay"}
	c.grantEverywhere(user, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "configmaps"}, Verbs: []string{"get", "list", "watch"}}})
	user.APIGroup = rbacv1.GroupName
	meta := metav1.ObjectMeta{GenerateName: "relay-"}
	_, err := c.client.RbacV1().ClusterRoleBindings().Create(c.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{user},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
	}, metav1.CreateOptions{})
	c.ok(err)
	_, err = c.client.RbacV1().RoleBindings("kube-system").Create(c.ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{user},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
	}, metav1.CreateOptions{})
	c.ok(err)
}

// at returns a configuration with the credentials of who, for the server at the address of to.
func at(to, who *rest.Config) *rest.Config {
	config := rest.CopyConfig(to)
	config.BearerToken, config.CertData, config.KeyData = who.BearerToken, who.CertData, who.KeyData
	return config
}

// typed returns a client with these settings, which prefers protobuf.
func typed(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
