package relay_test

import (
	"context"
	"net"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/customcacheinformer/informer/relay"
)

// leases is a resource that needs no API server to be known.
func leases() relay.Resource {
	return relay.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		Kind:                 "Lease", Namespaced: true,
	}
}

// options returns options of a relay whose API server does not answer.
func options(t *testing.T) relay.Options {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // for options that are refused
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	serving, err := dynamiccertificates.NewStaticCertKeyContent("serving", certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return relay.Options{
		Upstream: &rest.Config{Host: "http://127.0.0.1:1"},
		Serving: (&genericoptions.SecureServingOptions{
			Listener: listener, BindAddress: net.ParseIP("127.0.0.1"), ServerCert: genericoptions.GeneratableKeyCert{GeneratedCert: serving},
		}).WithLoopback(),
		Resources: []relay.Resource{leases()},
	}
}

// runBriefly makes a relay, runs it for a moment, and returns the error of New.
func runBriefly(t *testing.T, opts relay.Options) error {
	t.Helper()
	r, err := relay.New(opts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.Ready(); err == nil {
		t.Error("a relay that has read nothing is ready")
	}
	if err := r.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	return nil
}
