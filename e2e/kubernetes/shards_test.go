package kubernetes_test

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer/internal/sharding"
)

// TestReplicasDivideConfigMaps has three replicas of a controller. One leaves and comes back while objects
// change. No two may ever work on one key at once, and each change must be reconciled.
func TestReplicasDivideConfigMaps(t *testing.T) {
	skipIfShort(t)
	t.Run("each replica caches all", func(t *testing.T) { divide(newFleet(newCluster(t, shared), false), "") })
	t.Run("the API server selects", func(t *testing.T) { divide(newFleet(newCluster(t, shared), true), "served") })
	t.Run("the API server does not select", func(t *testing.T) {
		server, err := program.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
		})
		divide(newFleet(newCluster(t, server), true), "ignored")
	})
}

func divide(f *fleet, selector string) {
	a, b, c := f.start("a"), f.start("b"), f.start("c")
	f.awaitShares(a, b, c)
	f.awaitDone("first")
	for _, r := range []*replica{a, b, c} {
		f.await("Health shows the selector "+selector, func() bool { return r.set.Health().Selector == selector })
	}
	f.awaitForeign(selector == "ignored", a, b, c)

	// A delete while nothing moves.
	key := types.NamespacedName{Namespace: f.namespaces[0], Name: "config-0"}
	f.ok(f.client.CoreV1().ConfigMaps(key.Namespace).Delete(f.ctx, key.Name, metav1.DeleteOptions{}))
	f.await("the delete is reconciled", func() bool { return f.calls.foundGone(key) })

	var stopping sync.WaitGroup
	stopping.Go(a.stop)
	f.want("second") // during the handover
	stopping.Wait()
	before := f.calls.of("a")
	f.awaitShares(b, c)
	f.want("third")
	f.awaitDone("third")
	if n := f.calls.of("a"); n != before {
		f.Errorf("the replica that has left made %d more calls", n-before)
	}

	again := f.start("d")
	f.want("fourth") // during the handover
	f.awaitShares(b, c, again)
	f.awaitDone("fourth")
	f.awaitOwners(b, c, again)
	f.awaitCaches(b, c, again)
	f.calls.check(f.T)
}

// want changes the value that each ConfigMap asks for.
func (f *fleet) want(value string) {
	f.Helper()
	f.each(func(obj *corev1.ConfigMap) {
		// Replicas update the objects, too, so this is a patch.
		_, err := f.client.CoreV1().ConfigMaps(obj.Namespace).Patch(f.ctx, obj.Name, types.MergePatchType,
			[]byte(`{"data":{"`+wanted+`":"`+value+`"}}`), metav1.PatchOptions{})
		f.ok(err)
	})
}

// awaitDone waits until each ConfigMap has the value that it asks for.
func (f *fleet) awaitDone(value string) {
	f.Helper()
	f.await("every ConfigMap has "+value, func() bool {
		all := true
		f.each(func(obj *corev1.ConfigMap) { all = all && obj.Data[wanted] == value && obj.Data[done] == value })
		return all
	})
}

// each calls do for each ConfigMap of the fleet, as the API server has it.
func (f *fleet) each(do func(*corev1.ConfigMap)) {
	f.Helper()
	for _, namespace := range f.namespaces {
		list, err := f.client.CoreV1().ConfigMaps(namespace).List(f.ctx, metav1.ListOptions{})
		f.ok(err)
		for i := range list.Items {
			do(&list.Items[i])
		}
	}
}

// awaitShares waits until these replicas have all buckets, and each has its share.
func (f *fleet) awaitShares(replicas ...*replica) {
	f.Helper()
	f.await("the replicas share the buckets evenly", func() bool {
		for _, r := range replicas {
			h := r.set.Health()
			least := h.Buckets / len(replicas)
			if h.Replicas != len(replicas) || h.Unowned+h.CatchingUp+h.Draining != 0 || h.Owned < least || h.Owned > least+1 {
				return false
			}
		}
		return true
	})
}

// awaitForeign waits until a change of all objects shows whether the API server sends a replica the objects
// of other ones. Those that were on their way when a bucket moved come later.
func (f *fleet) awaitForeign(come bool, replicas ...*replica) {
	f.Helper()
	foreign := func() (sum int) {
		for _, r := range replicas {
			sum += r.inf.Health().Foreign
		}
		return sum
	}
	round := 0
	f.await(fmt.Sprintf("objects of other replicas come: %v", come), func() bool {
		before := foreign()
		round++
		f.want(fmt.Sprint("round ", round))
		f.awaitDone(fmt.Sprint("round ", round))
		return foreign() > before == come
	})
}

// awaitOwners waits until each key has one owner, which has made the last call for it.
func (f *fleet) awaitOwners(replicas ...*replica) {
	f.Helper()
	f.each(func(obj *corev1.ConfigMap) {
		key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
		var owners []string
		for _, r := range replicas {
			if set := sharding.Of(r.set); set.Has(set.Bucket(key.String())) {
				owners = append(owners, r.name)
			}
		}
		if len(owners) != 1 {
			f.Fatalf("%v is of these replicas: %v", key, owners)
		}
		f.await("the owner has reconciled the key", func() bool { return f.calls.lastOf(key) == owners[0] })
	})
}

// awaitCaches waits until each ConfigMap is in the caches that it should be in. A replica forgets the objects
// of a bucket ten seconds after it has lost the bucket.
func (f *fleet) awaitCaches(replicas ...*replica) {
	f.Helper()
	f.each(func(obj *corev1.ConfigMap) {
		key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
		f.await("the caches have the objects of their replicas", func() bool {
			right := true
			for _, r := range replicas {
				_, there, err := r.inf.Get(key)
				set := sharding.Of(r.set)
				f.ok(err)
				right = right && there == (!f.divided || set.Has(set.Bucket(key.String())))
			}
			return right
		})
	})
}
