package kubernetes_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestReplicasDivideConfigMaps has three replicas of a controller. One leaves and comes back while objects
// change. No two may ever work on one key at once, and each change must be reconciled.
func TestReplicasDivideConfigMaps(t *testing.T) {
	t.Run("each replica caches all", func(t *testing.T) { divide(newFleet(newCluster(t), false), "") })
	t.Run("the API server selects", func(t *testing.T) { divide(newFleet(newCluster(t), true), "served") })
	t.Run("the API server does not select", func(t *testing.T) {
		c := newCluster(t)
		server, err := program.Start(c.ctx)
		c.ok(err)
		t.Cleanup(func() {
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
		})
		divide(newFleet(clusterOf(t, server), true), "ignored")
	})
}

func divide(f *fleet, selector string) {
	a, b, c := f.start("a"), f.start("b"), f.start("c")
	f.awaitShares(a, b, c)
	f.awaitDone("first")
	for _, r := range []*replica{a, b, c} {
		f.await("Health says that the selector is "+selector, func() bool { return r.set.Health().Shards.Selector == selector })
	}
	f.checkForeign(selector, a, b, c)

	// A delete while nothing moves.
	key := types.NamespacedName{Namespace: f.namespaces[0], Name: "config-0"}
	f.ok(f.client.CoreV1().ConfigMaps(key.Namespace).Delete(f.ctx, key.Name, metav1.DeleteOptions{}))
	f.await("the delete is reconciled", func() bool { return f.calls.foundGone(key) })

	stopped := make(chan error, 1)
	go func() { stopped <- a.stop() }()
	f.want("second") // during the handover
	f.ok(<-stopped)
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
			h := r.set.Health().Shards
			least := h.Buckets / len(replicas)
			if h.Replicas != len(replicas) || h.Unowned+h.CatchingUp+h.Draining != 0 || h.Owned < least || h.Owned > least+1 {
				return false
			}
		}
		return true
	})
}

// checkForeign checks that an API server that selects sends no replica the objects of another one.
func (f *fleet) checkForeign(selector string, replicas ...*replica) {
	f.Helper()
	foreign := func() (sum int) {
		for _, r := range replicas {
			sum += r.inf.Health().Foreign
		}
		return sum
	}
	before := foreign()
	f.want("more")
	f.awaitDone("more")
	if came := foreign() > before; came != (selector == "ignored") {
		f.Errorf("objects of other replicas came: %v", came)
	}
}

// awaitOwners waits until each key has one owner, which has made the last call for it. Then it checks which
// caches have the object.
func (f *fleet) awaitOwners(replicas ...*replica) {
	f.Helper()
	f.each(func(obj *corev1.ConfigMap) {
		key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
		var owner *replica
		caches := 0
		for _, r := range replicas {
			if _, there, err := r.inf.Get(key); err != nil {
				f.Error(err)
			} else if there {
				caches++
			}
			if r.set.Has(r.set.Bucket(key.String())) {
				if owner != nil {
					f.Errorf("%v is of two replicas, %s and %s", key, owner.name, r.name)
				}
				owner = r
			}
		}
		if owner == nil || !f.divided && caches != len(replicas) {
			f.Fatalf("%v is of replica %v, and in %d caches", key, owner, caches)
		}
		f.await("the owner has reconciled the key", func() bool { return f.calls.lastOf(key) == owner.name })
		if _, there, err := owner.inf.Get(key); err != nil || !there {
			f.Errorf("%v is in the owner's cache: %v, %v", key, there, err)
		}
	})
}

// lastOf returns the replica of the last call for a key.
func (c *calls) lastOf(key types.NamespacedName) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[key]
}

// check fails the test if two calls for one key overlapped, or if a replica made no call.
func (c *calls) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, text := range c.overlaps {
		t.Error(text)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if c.count[name] == 0 {
			t.Errorf("replica %s made no call", name)
		}
	}
	t.Logf("calls by replica: %v", c.count)
}
