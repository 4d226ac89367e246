package shards_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/enqueue"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
	"github.com/customcacheinformer/informer/shards"
)

// fleet has some clusters with ConfigMaps, and replicas of one program that reconcile those of all clusters.
type fleet struct {
	t        *testing.T
	leases   *fake.Clientset
	slow     atomic.Int64 // how long a call takes
	clusters map[string]*informertest.Source[*corev1.ConfigMap]

	mu    sync.Mutex
	calls map[string]string // the replica that has a call under way, by key
	by    map[string]string // the replica that had the last call, by key
	read  map[string]int    // the version that the last call has read, 0 if the object was deleted, by key
	newer map[string]int    // the newest that a call has read, by key
	wrong []string
	cut   string // a cluster that a replica cannot reach: it may read an older state of it than the last replica, see InClusters
}

func newFleet(t *testing.T, clusters ...string) *fleet {
	f := &fleet{
		t: t, leases: fake.NewClientset(), clusters: map[string]*informertest.Source[*corev1.ConfigMap]{},
		calls: map[string]string{}, by: map[string]string{}, read: map[string]int{}, newer: map[string]int{},
	}
	informertest.NewSource[*coordinationv1.Lease]().Serve(&f.leases.Fake, "leases", &coordinationv1.LeaseList{})
	f.slow.Store(int64(10 * time.Millisecond))
	for _, name := range clusters {
		f.clusters[name] = informertest.NewSource[*corev1.ConfigMap]()
	}
	return f
}

// write writes objects in all clusters. They have the same names everywhere.
func (f *fleet) write(value string) {
	for _, c := range f.clusters {
		for n := range 40 {
			c.Apply(configMap(name(n), value))
		}
	}
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"value": value}}
}

// member is a replica over the clusters.
type member struct {
	name    string
	objects *informer.Clusters[*corev1.ConfigMap]
	set     *shards.Set
	leases  *link
	links   map[string]*link // by cluster
	stop    func()
}

func (f *fleet) start(name string) *member {
	f.t.Helper()
	quiet := func(context.Context, error) {}
	world := &world{t: f.t, traces: map[string][]string{}}
	m := &member{name: name, links: map[string]*link{}, leases: &link{LeaseInterface: f.leases.CoordinationV1().Leases("default"), world: world}}
	var err error
	m.set, err = shards.New(m.leases, shards.Options{Name: "test", Identity: name, Buckets: 8, ErrorHandler: quiet})
	testkit.Must(f.t, err)
	m.objects, err = informer.NewOverClusters(informer.Options[*corev1.ConfigMap]{ErrorHandler: quiet}, informer.ClusterOptions{})
	testkit.Must(f.t, err)
	for cluster, source := range f.clusters {
		m.links[cluster] = &link{objects: source, world: world}
		testkit.Must(f.t, m.objects.Engage(cluster, informer.ClusterSource{Source: configMaps{m.links[cluster]}}))
	}
	c, err := enqueue.NewController(func(ctx context.Context, key enqueue.Key) (time.Duration, error) {
		return 0, f.reconcile(ctx, m, key)
	}, enqueue.Options{Name: "objects", Workers: 4, Shards: m.set, ErrorHandler: quiet}, enqueue.InClusters(enqueue.For(m.objects.CustomCacheInformer)))
	var group informer.Group
	testkit.Must(f.t, errors.Join(err, group.Add(m.objects), group.Add(c), group.Add(m.set)))
	m.stop = running(f.t, &group)
	return m
}

func (m *member) ownsAll() {
	m.leases.world.t.Helper()
	if n := m.set.Health().Owned; n != 8 {
		m.leases.world.t.Errorf("%s, the replica that is left, owns %d of 8 buckets", m.name, n)
	}
}

func (f *fleet) reconcile(ctx context.Context, m *member, key enqueue.Key) error {
	at := key.String()
	f.mu.Lock()
	if by := f.calls[at]; by != "" {
		f.wrong = append(f.wrong, fmt.Sprintf("%s: calls of %s and %s at once", at, by, m.name))
	}
	f.calls[at] = m.name
	f.mu.Unlock()
	obj, exists, err := m.objects.In(key.Cluster).Get(key.NamespacedName)
	if err == nil {
		err = sleep(ctx, time.Duration(f.slow.Load()))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.calls, at)
	if err != nil {
		return err
	}
	version := 0
	if exists {
		version, _ = strconv.Atoi(obj.ResourceVersion)
		if version < f.newer[at] && key.Cluster != f.cut {
			f.wrong = append(f.wrong, fmt.Sprintf("%s: %s reads version %d after %d", at, m.name, version, f.newer[at]))
		}
	}
	f.by[at], f.read[at], f.newer[at] = m.name, version, max(version, f.newer[at])
	return nil
}

// settled fails the test unless all objects of these clusters are reconciled as they are now, after some time. It returns how many each
// replica has.
func (f *fleet) settled(after time.Duration, clusters ...string) (share map[string]int) {
	f.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	share = map[string]int{}
	for _, cluster := range clusters {
		for _, obj := range f.clusters[cluster].Objects() {
			at := cluster + "|default/" + obj.Name
			share[f.by[at]]++
			if got := strconv.Itoa(f.read[at]); got != obj.ResourceVersion {
				f.t.Errorf("%s: version %s is not reconciled, but %s by %s", at, obj.ResourceVersion, got, f.by[at])
			}
		}
	}
	for _, w := range f.wrong {
		f.t.Error(w)
	}
	f.wrong = nil
	return share
}

func (f *fleet) delete(cluster string, n int) {
	f.t.Helper()
	_, err := f.clusters[cluster].Delete(types.NamespacedName{Namespace: "default", Name: name(n)})
	testkit.Must(f.t, err)
}

// gone fails the test unless the delete is reconciled.
func (f *fleet) gone(cluster string, n int) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if version := f.read[cluster+"|default/"+name(n)]; version != 0 {
		f.t.Errorf("the delete of %s in %s is not reconciled, but version %d", name(n), cluster, version)
	}
}

// Replicas divide the keys of all clusters, although equal names and versions are in each of them. The versions of west are far
// behind those of east.
func TestReplicasDivideTheKeysOfClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "east", "west")
		for n := range 1000 {
			f.clusters["east"].Apply(configMap(name(0), fmt.Sprint("before ", n)))
		}
		f.write("1")
		a, b := f.start("a"), f.start("b")
		share := f.settled(2*time.Minute, "east", "west")
		if share["a"] == 0 || share["b"] == 0 || share["a"]+share["b"] != 80 {
			t.Errorf("the replicas have %v of 80 keys", share)
		}
		f.write("2")
		f.delete("west", 0)
		a.stop()
		f.settled(time.Minute, "east", "west")
		f.gone("west", 0)
		b.ownsAll()
		// A crash: the deletes that the dead replica has not handled are those of the next one.
		c := f.start("c")
		f.settled(2*time.Minute, "east", "west")
		b.leases.cut()
		for _, l := range b.links {
			l.cut()
		}
		for n := 1; n < 40; n += 2 {
			f.delete("east", n)
		}
		f.write("3")
		for n := 1; n < 40; n += 2 {
			f.delete("east", n)
		}
		f.settled(3*time.Minute, "east", "west")
		for n := 1; n < 40; n += 2 {
			f.gone("east", n)
		}
		c.ownsAll()
	})
}

// A cluster that a replica cannot reach holds up its takeover for a while, and not forever. When it can be reached again, its newest
// states are reconciled.
func TestAnUnreachableClusterHoldsUpNoBucketForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "east", "west")
		f.write("1")
		a, b := f.start("a"), f.start("b")
		f.settled(2*time.Minute, "east", "west")
		b.links["west"].cutObjects()
		f.mu.Lock()
		f.cut = "west"
		f.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if b.set.Health().Owned == 0 {
			t.Error("a replica that cannot reach a cluster in which nothing happens has no buckets")
		}
		f.write("2") // a has seen versions of west that b cannot see
		f.settled(5*time.Second, "east")
		a.stop()
		f.write("3")
		f.settled(time.Minute, "east")
		b.ownsAll()
		b.links["west"].healObjects()
		f.settled(2*time.Minute, "east", "west")
	})
}

// A takeover waits for a cluster that is cut off for a moment: no call reads an older state than the last replica had. A cluster that leaves
// meanwhile is not waited for.
func TestATakeoverWaitsForACluster(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		testkit.InBubble(t, fmt.Sprint("leaves=", leaves), func(t *testing.T) {
			f := newFleet(t, "east", "west")
			f.write("1")
			for n := range 100 { // the versions of the others do not matter
				f.clusters["west"].Apply(configMap(name(0), strconv.Itoa(n)))
			}
			a, b := f.start("a"), f.start("b")
			f.settled(2*time.Minute, "east", "west")
			b.links["east"].cutObjects()
			f.write("2")
			time.Sleep(2 * time.Second)
			a.stop()
			time.Sleep(4 * time.Second)
			if h := b.set.Health(); h.CatchingUp == 0 {
				t.Error("the takeover has not waited")
			}
			if !leaves {
				b.links["east"].healObjects()
				f.settled(2*time.Minute, "east", "west")
				return
			}
			_, err := b.objects.Disengage("east", informer.LeaveDeleted)
			testkit.Must(t, err)
			f.settled(time.Second, "west")
			if h := b.set.Health(); h.Owned != 8 || h.CatchingUp != 0 {
				t.Errorf("a second after the cluster has left, buckets wait: %+v", h)
			}
		})
	}
}

// Deletes that no other replica has seen are handed over by their keys.
func TestDeletesOfClustersAreHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "east", "west")
		f.write("1")
		a := f.start("a")
		f.settled(time.Minute, "east", "west")
		f.slow.Store(int64(20 * time.Second))
		for n := range 40 {
			f.delete("west", n)
		}
		time.Sleep(time.Second)
		f.start("b")
		time.Sleep(30 * time.Second)
		f.slow.Store(int64(10 * time.Millisecond))
		a.stop()
		f.settled(2*time.Minute, "east", "west")
		for n := range 40 {
			f.gone("west", n)
		}
	})
}
