package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/customcacheinformer/informer/clusters"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// The controller labels ConfigMaps of equal names in two clusters, and those of a cluster that comes later. It ends its work in a cluster that leaves.
func TestEachClusterGetsItsLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		servers := map[string]kubernetes.Interface{}
		for _, name := range []string{"east", "west", "north"} {
			client := fake.NewClientset()
			servers["https://"+name] = client
			write(t, client, "a", nil)
			write(t, client, "b", map[string]string{"owner": "shop"})
		}
		owner := func(cluster, name string) string {
			t.Helper()
			config, err := servers["https://"+cluster].CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return config.Labels["owner"]
		}
		directory := t.TempDir()
		add := func(cluster string) {
			if err := os.WriteFile(filepath.Join(directory, cluster+".yaml"), kubeconfig(cluster), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		add("east")
		add("west")
		f, err := newFleet(clusters.Directory{Path: directory}, func(config *rest.Config) (kubernetes.Interface, error) { return servers[config.Host], nil })
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- f.group.Run(ctx) }()
		time.Sleep(time.Minute)
		for _, cluster := range []string{"east", "west"} {
			if a, b := owner(cluster, "a"), owner(cluster, "b"); a != "nobody" || b != "shop" {
				t.Errorf("%s: the owners are %q and %q", cluster, a, b)
			}
		}
		if got := owner("north", "a"); got != "" {
			t.Errorf("before the cluster is there, the owner is %q", got)
		}
		add("north")
		if err := os.Remove(filepath.Join(directory, "west.yaml")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		write(t, servers["https://west"], "c", nil)
		time.Sleep(time.Minute)
		if north, west := owner("north", "a"), owner("west", "c"); north != "nobody" || west != "" {
			t.Errorf("the owner in the cluster that has come is %q, and %q in the one that has left", north, west)
		}
		if h := f.group.Health()["owners"].(enqueue.Health); h.Failed != 0 {
			t.Errorf("calls have failed: %+v", h)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAWrongDirectoryIsAnError(t *testing.T) {
	if _, err := newFleet(clusters.Directory{}, nil); err == nil {
		t.Error("no error")
	}
}

func write(t *testing.T, client kubernetes.Interface, name string, labels map[string]string) {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func kubeconfig(cluster string) []byte {
	return fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": "https://%s"}}],
		"users": [{"name": "u", "user": {"token": "t"}}]}`, cluster)
}
