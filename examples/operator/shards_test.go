package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	netv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/examples/operator/website"
	"github.com/customcacheinformer/informer/informertest"
)

// shared is an API server with Websites that several replicas of the operator share.
type shared struct {
	t         *testing.T
	websites  *informertest.Source[*website.Website]
	ingresses *informertest.Source[*netv1.Ingress]
	leases    *informertest.Source[*coordinationv1.Lease]
	keys      []types.NamespacedName
	verbs     sets.Set[string] // of the replicas' requests for Leases
}

func newShared(t *testing.T, sites int) *shared {
	s := &shared{
		t: t, websites: informertest.NewSource[*website.Website](), ingresses: informertest.NewSource[*netv1.Ingress](),
		leases: informertest.NewSource[*coordinationv1.Lease](), verbs: sets.New[string](),
	}
	for n := range sites {
		site := shop()
		site.Name, site.UID = fmt.Sprint("shop-", n), types.UID(fmt.Sprint(n))
		s.keys = append(s.keys, types.NamespacedName{Namespace: site.Namespace, Name: site.Name})
		s.websites.Apply(site)
	}
	return s
}

// replica is one replica of the operator. Its clientset records its requests.
type replica struct {
	kube *fake.Clientset
	stop func()
}

func (s *shared) start() *replica {
	s.t.Helper()
	r := &replica{kube: fake.NewClientset()}
	sites := website.NewFake()
	s.websites.Serve(&sites.Fake, "websites", &website.List{})
	s.ingresses.Serve(&r.kube.Fake, "ingresses", &netv1.IngressList{})
	s.leases.Serve(&r.kube.Fake, "leases", &coordinationv1.LeaseList{})
	set, err := newSet(r.kube, "default")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, &informer.Group{}, sites, r.kube, 2, set) }()
	r.stop = func() {
		s.t.Helper()
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	}
	return r
}

// move gives each Website another host.
func (s *shared) move(prefix string) {
	s.t.Helper()
	for _, key := range s.keys {
		site, err := s.websites.Get(key)
		if err != nil {
			s.t.Fatal(err)
		}
		site.Spec.Host = prefix + key.Name
		s.websites.Apply(site)
	}
}

// expect waits until the replicas have agreed and have nothing to do. It checks that each Website
// has an Ingress for its host, that exactly one replica has written it since the last call, and that
// each replica has written some.
func (s *shared) expect(what string, replicas ...*replica) {
	s.t.Helper()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	for _, key := range s.keys {
		site, err := s.websites.Get(key)
		if err != nil {
			s.t.Fatal(err)
		}
		ingress, err := s.ingresses.Get(key)
		if err != nil || ingress.Spec.Rules[0].Host != site.Spec.Host || site.Status.ObservedGeneration != site.Generation {
			s.t.Errorf("%s: %s is at %q with the status %+v; its Ingress is %v, %v", what, key, site.Spec.Host, site.Status, ingress, err)
		}
	}
	writers := map[string][]int{}
	for i, r := range replicas {
		wrote := map[string]bool{} // a write that was refused as a conflict is made again
		for _, action := range r.kube.Actions() {
			if action.GetResource().Resource == "leases" {
				s.verbs.Insert(action.GetVerb())
			}
			if write, ok := action.(clienttesting.UpdateAction); ok { // or a CreateAction, which has the same methods
				if ingress, ok := write.GetObject().(*netv1.Ingress); ok {
					wrote[ingress.Name] = true
				}
			}
		}
		if len(wrote) == 0 {
			s.t.Errorf("%s: replica %d has written no Ingress", what, i)
		}
		for name := range wrote {
			writers[name] = append(writers[name], i)
		}
		r.kube.ClearActions()
	}
	for _, key := range s.keys {
		if len(writers[key.Name]) != 1 {
			s.t.Errorf("%s: the Ingress %s was written by the replicas %v, want one", what, key.Name, writers[key.Name])
		}
	}
}

// Three replicas share the Websites. A replica that stops hands over, and a replica that comes gets
// its part.
func TestReplicasShareTheWebsites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t, 50)
		first := s.start()
		s.expect("one replica", first)

		second, third := s.start(), s.start()
		time.Sleep(10 * time.Second)
		s.move("three.")
		s.expect("three replicas", first, second, third)

		first.stop()
		s.move("two.")
		s.expect("one has stopped", second, third)

		fourth := s.start()
		second.stop()
		time.Sleep(10 * time.Second)
		s.move("other.")
		s.expect("one is replaced", third, fourth)
		third.stop()
		fourth.stop()

		for _, rule := range rights(t).Rules {
			s.verbs = s.verbs.Difference(sets.New(rule.Verbs...))
		}
		if len(s.verbs) > 0 {
			t.Errorf("role.yaml lacks %v", sets.List(s.verbs))
		}
	})
}

func rights(t *testing.T) *rbacv1.Role {
	t.Helper()
	file, err := os.ReadFile("role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{}
	if err := yaml.UnmarshalStrict(file, role); err != nil {
		t.Fatal(err)
	}
	return role
}
