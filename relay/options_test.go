package relay_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/relay"
)

func TestOptionsThatCannotBeUsedAreErrorsThatNameTheField(t *testing.T) {
	for want, change := range map[string]func(*relay.Options){
		"Options.Upstream is nil": func(o *relay.Options) { o.Upstream = nil },
		"Options.Serving is nil":  func(o *relay.Options) { o.Serving = nil },
		"no resource":             func(o *relay.Options) { o.Resources = nil },
		"Options.Resources has leases.v1.coordination.k8s.io twice": func(o *relay.Options) { o.Resources = append(o.Resources, leases()) },
		"Secrets are not served":                                    func(o *relay.Options) { o.Resources = []relay.Resource{secrets()} },
		"Secrets are not served unless":                             func(o *relay.Options) { o.Names = []string{"secret"} },
		"Options.Names has an empty name":                           func(o *relay.Options) { o.Names = []string{""} },
		"Options.Names has leases.v1.coordination.k8s.io twice":     func(o *relay.Options) { o.Names = []string{"leases.v1.coordination.k8s.io"} },
		"Kind are required":                                         func(o *relay.Options) { o.Resources[0].Kind = "" },
		"Options.MaxStaleness is -1ns":                              func(o *relay.Options) { o.MaxStaleness = -1 },
		"Options.MinWatchTimeout is 1ms, not a whole number":        func(o *relay.Options) { o.MinWatchTimeout = time.Millisecond },
		"none of Fields":                                            func(o *relay.Options) { o.Resources[0].Index = "spec.holderIdentity" },
	} {
		opts := options(t)
		change(&opts)
		if _, err := relay.New(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestNewThatFailsReleasesThePort(t *testing.T) {
	opts := options(t)
	address, cert := opts.Serving.Listener.Addr().(*net.TCPAddr), opts.Serving.ServerCert
	if err := opts.Serving.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	serving := &genericoptions.SecureServingOptions{BindAddress: address.IP, BindPort: address.Port, ServerCert: cert}
	opts.Serving, opts.Resources[0].Index = serving.WithLoopback(), "spec.holderIdentity" // none of Fields
	if _, err := relay.New(opts); err == nil || !strings.Contains(err.Error(), "none of Fields") {
		t.Errorf("got %v, want an error about the index", err)
	}
	again, err := net.Listen("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func secrets() relay.Resource {
	return relay.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret", Namespaced: true}
}

// A store is claimed by the informer that runs over it.
func TestARelayWhoseStoreIsTakenEnds(t *testing.T) {
	store := informertest.NewDurable()
	first, second := options(t), options(t)
	first.Resources[0].Store, second.Resources[0].Store = store, store
	one, err := relay.New(first)
	if err != nil {
		t.Fatal(err)
	}
	other, err := relay.New(second)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	ctx := t.Context()
	go func() { done <- one.Run(ctx) }()
	go func() { done <- other.Run(ctx) }()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "the same Options.Durable") {
		t.Errorf("got %v, want an error about the store", err)
	}
	t.Cleanup(func() { // t's ctx is done
		if err := <-done; err != nil {
			t.Errorf("the first relay: %v", err)
		}
	})
}

func TestARelayRunsOnce(t *testing.T) {
	r, err := relay.New(options(t))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx := t.Context()
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for !r.Health()["leases.v1.coordination.k8s.io"].HasRun() {
		time.Sleep(time.Millisecond) // the API server does not answer, so nothing else shows that Run has begun
	}
	if err := r.Run(ctx); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("the second Run: %v", err)
	}
}
