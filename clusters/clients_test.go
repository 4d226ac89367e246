package clusters_test

import (
	"errors"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/clusters"
)

func TestEachClusterHasAClient(t *testing.T) {
	var c clusters.Follower // as a provider sees it
	clients := clusters.NewClients(func(config *rest.Config) (string, error) {
		if config.Host == "" {
			return "", errors.New("no host")
		}
		return "client of " + config.Host, nil
	})
	c = clients
	expect := func(cluster, want string) {
		t.Helper()
		got, err := clients.In(cluster)
		if got != want || (want == "") != errors.Is(err, informer.ErrNotEngaged) {
			t.Errorf("%s has %q, %v, want %q", cluster, got, err, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	expect("east", "")
	must(c.Engage("east", &rest.Config{Host: "a"}, "1"))
	expect("east", "client of a")
	expect("west", "")
	must(c.Replace("east", &rest.Config{Host: "b"}, "1"))
	expect("east", "client of b")
	if err := c.Replace("east", &rest.Config{}, "1"); err == nil {
		t.Error("the error of connect is lost")
	}
	expect("east", "client of b")
	must(c.Disengage("east"))
	must(c.Disengage("east"))
	expect("east", "")
	if _, err := clusters.New(clusters.Directory{Path: "/"}, clusters.Options{}, clusters.NewClients[string](nil)); err == nil {
		t.Error("New takes a follower without connect")
	}
}
