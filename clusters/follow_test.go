package clusters_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/clusters"
	"github.com/customcacheinformer/informer/informertest"
)

// An informer follows Secrets that come, change and go.
func TestAnInformerFollowsTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, err := informer.NewOverClusters(informer.Options[*corev1.Pod]{}, informer.ClusterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		servers := map[string]*informertest.Source[*corev1.Pod]{}
		for _, host := range []string{"east", "west"} {
			servers["https://"+host+".example.com"] = informertest.NewSource(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "in-" + host}})
		}
		clientset := fake.NewClientset()
		provider, err := clusters.New(
			clusters.Secrets{Client: clientset.CoreV1(), Namespace: "fleet", Selector: "fleet=eu"},
			clusters.Options{
				UID:          func(_ context.Context, config *rest.Config) (types.UID, error) { return types.UID(config.Host), nil },
				ErrorHandler: func(context.Context, error) {},
			},
			clusters.Follow(pods, func(config *rest.Config) (cache.ListerWatcher, error) {
				if config.BearerToken == "bad" {
					return nil, errors.New("bad")
				}
				return servers[config.Host], nil
			}),
		)
		if err != nil {
			t.Fatal(err)
		}
		var group informer.Group
		if err := errors.Join(group.Add(pods), group.Add(provider)); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- group.Run(ctx) }()
		defer func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		secrets := clientset.CoreV1().Secrets("fleet")
		write := func(name, host, token string, create bool) {
			t.Helper()
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: map[string]string{"fleet": "eu"}},
				Data:       map[string][]byte{"kubeconfig": kubeconfig(host+".example.com", token)},
			}
			var err error
			if create {
				_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
			} else {
				_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		check := func(want ...string) {
			t.Helper()
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			var have []string
			for _, name := range pods.Engaged() {
				for key := range pods.In(name).All() {
					have = append(have, name+"|"+key.Name)
				}
			}
			slices.Sort(have)
			if fmt.Sprint(have) != fmt.Sprint(want) {
				t.Errorf("the informer has %v, want %v", have, want)
			}
		}
		check()
		write("a", "east", "1", true)
		write("b", "west", "1", true)
		check("a|in-east", "b|in-west")
		requests := len(servers["https://east.example.com"].Requests())
		write("a", "east", "2", false) // new credentials, which need no list
		check("a|in-east", "b|in-west")
		for _, r := range servers["https://east.example.com"].Requests()[requests:] {
			if r.Verb == "list" && r.Options.Limit != 1 || r.Options.SendInitialEvents != nil {
				t.Errorf("new credentials have led to a list: %+v", r)
			}
		}
		write("a", "east", "bad", false)
		check("a|in-east", "b|in-west")
		write("a", "west", "3", false) // another cluster
		check("a|in-west", "b|in-west")
		if err := secrets.Delete(ctx, "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check("a|in-west")
		if _, err := pods.Disengage("a", informer.LeaveSilently); err != nil {
			t.Fatal(err)
		}
		if err := secrets.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check()
		if err := provider.MemberHealth().Ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestFollowWithoutAnInformer(t *testing.T) {
	source := clusters.Directory{Path: "/"}
	for _, f := range []clusters.Follower{
		clusters.Follow[*corev1.Pod](nil, func(*rest.Config) (cache.ListerWatcher, error) { return nil, nil }),
		clusters.Follow(&informer.Clusters[*corev1.Pod]{}, nil),
	} {
		if _, err := clusters.New(source, clusters.Options{}, f); err == nil {
			t.Error("it is taken")
		}
	}
}

// Clusters that were removed while no process ran leave a Durable. One whose kubeconfig is refused stays.
func TestAnInformerForgetsTheClustersThatWereRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := informertest.NewDurable()
		if err := store.Apply(t.Context(), nil, `{"removed":{"uid":"1"},"refused":{"uid":"2"}}`); err != nil {
			t.Fatal(err)
		}
		pods, err := informer.NewOverClusters(informer.Options[*corev1.Pod]{Durable: store}, informer.ClusterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		clientset := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "refused", Labels: map[string]string{"fleet": "eu"}}})
		provider, err := clusters.New(
			clusters.Secrets{Client: clientset.CoreV1(), Namespace: "fleet", Selector: "fleet=eu"},
			clusters.Options{ErrorHandler: func(context.Context, error) {}},
			clusters.Follow(pods, func(*rest.Config) (cache.ListerWatcher, error) { return nil, errors.New("not called") }),
		)
		if err != nil {
			t.Fatal(err)
		}
		informertest.Run(t, pods)
		informertest.Run(t, provider)
		time.Sleep(time.Minute)
		if got := pods.Engaged(); !slices.Equal(got, []string{"refused"}) {
			t.Errorf("engaged: %v, want only the one that is refused", got)
		}
	})
}

// The program has disengaged the cluster, and then its configuration changes.
func TestAChangedClusterThatIsNotEngagedIsEngaged(t *testing.T) {
	pods, err := informer.NewOverClusters(informer.Options[*corev1.Pod]{}, informer.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	follower := clusters.Follow(pods, func(*rest.Config) (cache.ListerWatcher, error) {
		return informertest.NewSource[*corev1.Pod](), nil
	})
	for range 2 {
		if err := follower.Replace("east", &rest.Config{}, "1"); err != nil {
			t.Error(err)
		}
		if got := pods.Engaged(); !slices.Equal(got, []string{"east"}) {
			t.Errorf("engaged: %v", got)
		}
	}
}
