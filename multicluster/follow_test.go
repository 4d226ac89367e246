package multicluster_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	aware "sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/clusters"
	"sigs.k8s.io/multicluster-runtime/providers/multi"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/multicluster"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // see informertest.Main
	log.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

var _ aware.Aware = (*multicluster.Follower[testkit.ConfigMap])(nil)
var lists = multicluster.ListWatch(&corev1.ConfigMapList{})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) { must(0, err) }

// newCluster returns a cluster of controller-runtime with a config map, and the source that answers its requests.
func newCluster(name string) (cluster.Cluster, *testkit.Source) {
	src := informertest.NewSource(testkit.Object(name, "1"))
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return must(cluster.New((&testkit.Wire{Source: src}).Config(), func(o *cluster.Options) {
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kinds, nil }
	})), src
}

func newSet() (*informer.Clusters[testkit.ConfigMap], *testkit.Recorder) {
	set, recorder := must(informer.NewOverClusters(testkit.Options{}, informer.ClusterOptions{})), &testkit.Recorder{}
	must(set.AddWatcher(recorder, informer.WatcherOptions{}))
	return set, recorder
}

// engaged fails the test unless these clusters are engaged, and their objects are there.
func engaged(t *testing.T, set *informer.Clusters[testkit.ConfigMap], objects int, want ...string) {
	t.Helper()
	synctest.Wait()
	if have, n := set.Engaged(), len(must(set.List("", nil))); !slices.Equal(have, want) || n != objects {
		t.Fatalf("%q are engaged with %d objects, want %q and %d", have, n, want, objects)
	}
}

// Clusters come, leave and come back. When the program ends, they do not leave.
func TestAnInformerFollowsAProvider(t *testing.T) {
	for leave, deleted := range map[informer.Leave][]string{informer.LeaveDeleted: {"deleted fleet#eu/east|default/a"}, informer.LeaveSilently: nil} {
		synctest.Test(t, func(t *testing.T) {
			set, recorder := newSet()
			follower := must(multicluster.Follow(set, lists, leave))
			fleet, all := clusters.New(), multi.New(multi.Options{})
			check(all.AddProvider("fleet", fleet))
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- all.Start(ctx, follower) }()
			go func() { done <- follower.Start(ctx) }()
			add := func(name, object string) {
				synctest.Wait()
				cl, _ := newCluster(object)
				check(fleet.Add(ctx, name, cl))
			}
			add("eu/east", "a")
			engaged(t, set, 0, "fleet#eu/east") // before the informer runs
			informertest.Run(t, set)
			add("eu/west", "b")
			recorder.Expect(t, "added fleet#eu/east|default/a", "added fleet#eu/west|default/b")
			fleet.Remove("eu/east")
			engaged(t, set, 1, "fleet#eu/west")
			recorder.Expect(t, deleted...)
			add("eu/east", "c")
			recorder.Expect(t, "added fleet#eu/east|default/c")
			stop()
			check(errors.Join(<-done, <-done))
			engaged(t, set, 2, "fleet#eu/west", "fleet#eu/east")
			recorder.Expect(t)
		})
	}
}

// The last engagement of a name counts, and its ctx, whatever happens to the ones before.
func TestAClusterThatComesAgain(t *testing.T) {
	for uid, replaced := range map[types.UID][]string{"uid": nil, "": {"deleted east|default/a", "added east|default/a"}} {
		synctest.Test(t, func(t *testing.T) {
			set, recorder := newSet()
			stopInformer := informertest.Run(t, set)
			one, src := newCluster("a")
			two, _ := newCluster("b")
			follower := must(multicluster.Follow(set, func(context.Context, string, cluster.Cluster) (informer.ClusterSource, error) {
				return informer.ClusterSource{Source: src, UID: uid}, nil
			}, informer.LeaveSilently))
			starting, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- follower.Start(starting) }()
			end := func() {}
			engage := func(cl cluster.Cluster) {
				ctx, next := context.WithCancel(t.Context())
				check(follower.Engage(ctx, "east", cl))
				end()
				end = next
			}
			engage(one)
			recorder.Expect(t, "added east|default/a")
			engage(one)
			engaged(t, set, 1, "east")
			recorder.Expect(t) // nothing: it is the same
			engage(two)
			engaged(t, set, 1, "east")
			recorder.Expect(t, replaced...)
			must(set.Disengage("east", informer.LeaveSilently))
			engage(one) // though the program has disengaged it
			for n := range 1000 {
				end() // which is noticed before the cluster comes back, or after that
				engage([]cluster.Cluster{one, two}[n/2%2])
			}
			engaged(t, set, 1, "east")
			end()
			engaged(t, set, 0)
			if n := src.Watches(); n != 0 {
				t.Errorf("%d watches are left", n)
			}
			engage(two) // as at last
			engaged(t, set, 1, "east")
			stop()
			check(<-done)
			again, over := follower.Start(starting), follower.Engage(t.Context(), "east", one)
			stopInformer()
			stopped := must(multicluster.Follow(set, lists, informer.LeaveDeleted)).Engage(t.Context(), "west", one)
			if !errors.Is(again, informer.ErrAlreadyRun) || !errors.Is(over, informer.ErrStopped) || !errors.Is(stopped, informer.ErrStopped) {
				t.Errorf("a second Start: %v; Engage after the end: %v, and of the informer: %v", again, over, stopped)
			}
		})
	}
}

type unusable struct{ cluster.Cluster }

func (unusable) GetConfig() *rest.Config { return nil }

// labelled is a cluster whose values cannot be compared.
type labelled struct {
	cluster.Cluster
	labels map[string]string
}

func TestAClusterWhoseValuesCannotBeCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, recorder := newSet()
		informertest.Run(t, set)
		cl, src := newCluster("a")
		follower := must(multicluster.Follow(set, func(context.Context, string, cluster.Cluster) (informer.ClusterSource, error) {
			return informer.ClusterSource{Source: src, UID: "uid"}, nil
		}, informer.LeaveSilently))
		for range 2 {
			check(follower.Engage(t.Context(), "east", labelled{cl, nil}))
			engaged(t, set, 1, "east")
		}
		recorder.Expect(t, "added east|default/a")
	})
}

func TestAClusterThatTheProgramHasDisengagedComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, recorder := newSet()
		stop := informertest.Run(t, set)
		cl, _ := newCluster("a")
		follower := must(multicluster.Follow(set, lists, informer.LeaveDeleted))
		check(follower.Engage(t.Context(), "east", cl))
		recorder.Expect(t, "added east|default/a")
		must(set.Disengage("east", informer.LeaveSilently))
		check(follower.Engage(t.Context(), "east", cl))
		recorder.Expect(t, "added east|default/a")
		engaged(t, set, 1, "east")
		stop()
		if err := follower.Engage(t.Context(), "east", cl); !errors.Is(err, informer.ErrStopped) {
			t.Errorf("Engage after the end of the informer: %v, want %v", err, informer.ErrStopped)
		}
	})
}

func TestEngageRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, _ := newSet()
		follower := must(multicluster.Follow(set, lists, informer.LeaveDeleted))
		cl, src := newCluster("a")
		check(set.Engage("taken", informer.ClusterSource{Source: src}))
		refuses := func(ctx context.Context, name string, cl cluster.Cluster, why string) {
			if err := follower.Engage(ctx, name, cl); err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("Engage of %q: %v, want %q", name, err, why)
			}
		}
		ctx, end := context.WithCancelCause(t.Context())
		check(follower.Engage(ctx, "east", cl))
		refuses(ctx, "east", nil, "the cluster is nil")
		refuses(ctx, "east", (*unusable)(nil), "the cluster is nil")
		refuses(ctx, "east", unusable{cl}, "rest.Config")
		refuses(ctx, "a b", cl, "has a space")
		refuses(ctx, "taken", cl, "is engaged already")
		engaged(t, set, 0, "taken", "east")
		end(errors.New("it is over"))
		refuses(ctx, "east", cl, "it is over")
		engaged(t, set, 0, "taken")
	})
}

func TestFollowRefuses(t *testing.T) {
	set, _ := newSet()
	_, noSource := multicluster.Follow(set, nil, informer.LeaveDeleted)
	if _, err := multicluster.Follow[testkit.ConfigMap](nil, lists, informer.LeaveDeleted); err == nil || noSource == nil {
		t.Error("it takes nil")
	}
}

func TestEngageWrapsTheCauseThatItsSourceHides(t *testing.T) {
	set, _ := newSet()
	follower := must(multicluster.Follow(set, func(ctx context.Context, _ string, _ cluster.Cluster) (informer.ClusterSource, error) {
		return informer.ClusterSource{}, ctx.Err()
	}, informer.LeaveSilently))
	cl, _ := newCluster("a")
	cause := errors.New("the provider has removed the cluster")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := follower.Engage(ctx, "east", cl); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}
