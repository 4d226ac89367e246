package clusters_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/clusters"
	"github.com/customcacheinformer/informer/informertest"
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

// ordered is a follower that notes its calls in a log which it shares with others.
type ordered struct {
	name string
	log  *[]string
}

func (o ordered) note(call string) error { *o.log = append(*o.log, call+" "+o.name); return nil }

func (o ordered) Engage(string, *rest.Config, types.UID) error  { return o.note("engage") }
func (o ordered) Replace(string, *rest.Config, types.UID) error { return o.note("replace") }
func (o ordered) Disengage(string) error                        { return o.note("disengage") }

// The first follower, such as Clients, has a cluster as long as any other.
func TestAClusterLeavesInTheReverseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		directory, log := t.TempDir(), []string{}
		file := filepath.Join(directory, "east.yaml")
		if err := os.WriteFile(file, kubeconfig("east", "token"), 0o600); err != nil {
			t.Fatal(err)
		}
		uid := func(context.Context, *rest.Config) (types.UID, error) { return "uid", nil }
		p, err := clusters.New(clusters.Directory{Path: directory}, clusters.Options{UID: uid}, ordered{"first", &log}, ordered{"last", &log})
		if err != nil {
			t.Fatal(err)
		}
		stop := informertest.Run(t, p)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of the bubble
		stop()
		if want := []string{"engage first", "engage last", "disengage last", "disengage first"}; !slices.Equal(log, want) {
			t.Errorf("the calls were %v, want %v", log, want)
		}
	})
}
