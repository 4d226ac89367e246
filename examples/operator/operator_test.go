package main

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	netv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/examples/operator/website"
	"github.com/customcacheinformer/informer/informertest"
)

var shopKey = types.NamespacedName{Namespace: "default", Name: "shop"}

func shop() *website.Website {
	return &website.Website{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop", UID: "1"},
		Spec:       website.Spec{Host: "shop.example.com", Service: "shop", Port: 80},
	}
}

func online(ingress *netv1.Ingress) *netv1.Ingress {
	ingress.Status.LoadBalancer.Ingress = []netv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	return ingress
}

func of[T any](objs ...T) []T { return objs }

// A single call of reconcile reads from readers that the test fills, and writes to client-go's
// fakes, which record the calls. Nothing else runs, so the test need not wait for anything.
func TestReconcile(t *testing.T) {
	until := func(d time.Duration) *website.Website {
		site := shop()
		site.Spec.Expires = &metav1.Time{Time: time.Now().Add(d)}
		return site
	}
	moved := shop()
	moved.Spec.Host = "store.example.com"
	settled := shop()
	settled.Status = website.Status{Phase: website.Online, Address: "192.0.2.1"}
	reached, foreign := online(ingressFor(shop())), ingressFor(shop())
	foreign.OwnerReferences = nil
	for _, test := range []struct {
		what      string
		sites     []*website.Website // the Websites that exist
		ingresses []*netv1.Ingress
		verb      string        // the call that changes the Ingress
		phase     website.Phase // the new phase in the status
		again     bool          // reconcile asks to be called again later
		fails     bool
	}{
		{what: "new", sites: of(shop()), verb: "create", phase: website.Pending},
		{what: "with an address", sites: of(shop()), ingresses: of(reached), phase: website.Online},
		{what: "settled", sites: of(settled), ingresses: of(reached)},
		{what: "another host", sites: of(moved), ingresses: of(reached), verb: "update", phase: website.Online},
		{what: "expires later", sites: of(until(time.Hour)), ingresses: of(reached), phase: website.Online, again: true},
		{what: "has expired", sites: of(until(-time.Hour)), ingresses: of(reached), verb: "delete", phase: website.Expired},
		{what: "the Ingress of another owner", sites: of(shop()), ingresses: of(foreign), fails: true},
		{what: "deleted"},
	} {
		t.Run(test.what, func(t *testing.T) {
			kube, sites := fake.NewClientset(), website.NewFake(test.sites...)
			for _, ingress := range test.ingresses {
				if err := kube.Tracker().Add(ingress); err != nil {
					t.Fatal(err)
				}
			}
			o := &operator{
				websites:  informertest.NewReader(t, informer.Options[*website.Website]{}, test.sites...),
				ingresses: informertest.NewReader(t, informer.Options[*netv1.Ingress]{}, test.ingresses...),
				sites:     sites,
				kube:      kube,
			}
			again, err := o.reconcile(t.Context(), shopKey)
			if (err != nil) != test.fails || (again > 0) != test.again {
				t.Errorf("reconcile returned %v, %v", again, err)
			}
			var did string
			for _, action := range kube.Actions() {
				did += action.GetVerb()
			}
			if did != test.verb {
				t.Errorf("the Ingress saw %q, want %q", did, test.verb)
			}
			var phase website.Phase
			for _, action := range sites.Actions() {
				phase = action.(clienttesting.UpdateAction).GetObject().(*website.Website).Status.Phase
			}
			if phase != test.phase {
				t.Errorf("the status was set to %q, want %q", phase, test.phase)
			}
		})
	}
}

// start runs the operator in the bubble of t and returns a function that stops it.
func start(t *testing.T, sites website.Interface, kube kubernetes.Interface) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, &informer.Group{}, sites, kube, 2, nil) }()
	synctest.Wait()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The whole operator runs on fake clientsets. In a synctest bubble, Wait returns when every
// goroutine is blocked, and time passes only when all goroutines sleep.
func TestOnFakeClientsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := shop()
		site.Spec.Expires = &metav1.Time{Time: time.Now().Add(time.Hour)}
		sites, kube := website.NewFake(site), fake.NewClientset()
		stop := start(t, sites, kube)
		defer stop()
		ingresses := kube.NetworkingV1().Ingresses("default")
		expect := func(what string, exists bool, phase website.Phase) {
			t.Helper()
			synctest.Wait()
			if _, err := ingresses.Get(t.Context(), "shop", metav1.GetOptions{}); (err == nil) != exists {
				t.Errorf("%s: the Ingress: %v", what, err)
			}
			list, err := sites.Websites("default").List(t.Context(), metav1.ListOptions{})
			if err != nil || list.Items[0].Status.Phase != phase {
				t.Errorf("%s: %+v, %v, want phase %s", what, list.Items[0].Status, err, phase)
			}
		}
		expect("at the start", true, website.Pending)
		if err := ingresses.Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("deleted by hand", true, website.Pending)
		if _, err := ingresses.UpdateStatus(t.Context(), online(ingressFor(site)), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("with an address", true, website.Online)
		time.Sleep(time.Hour)
		expect("expired", false, website.Expired)
	})
}

// The operator runs on informertest's sources. They are more like an API server: stale writes
// are conflicts, and watches break and expire.
func TestOnSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sites, kube := website.NewFake(), fake.NewClientset()
		websites, ingresses := informertest.NewSource(shop()), informertest.NewSource[*netv1.Ingress]()
		websites.Serve(&sites.Fake, "websites", &website.List{})
		ingresses.Serve(&kube.Fake, "ingresses", &netv1.IngressList{})
		expect := func(what, host string, phase website.Phase) {
			t.Helper()
			synctest.Wait()
			ingress, err := ingresses.Get(shopKey)
			if err != nil || ingress.Spec.Rules[0].Host != host {
				t.Errorf("%s: the Ingress: %v, %v", what, ingress, err)
			}
			if site, err := websites.Get(shopKey); err != nil || site.Status.Phase != phase {
				t.Errorf("%s: the Website: %+v, %v, want phase %s", what, site.Status, err, phase)
			}
		}
		change := func(host string) {
			t.Helper()
			site, err := websites.Get(shopKey)
			if err != nil {
				t.Fatal(err)
			}
			site.Spec.Host = host
			websites.Apply(site)
		}

		stop := start(t, sites, kube)
		expect("at the start", "shop.example.com", website.Pending)

		// A user changes the Ingress while the operator's watch is stuck. The operator's
		// writes are refused until it has seen the change.
		ingresses.SetFaults(informertest.Faults{Mute: true})
		ingress, err := ingresses.Get(shopKey)
		if err != nil {
			t.Fatal(err)
		}
		ingress.Annotations = map[string]string{"team": "shop"}
		ingresses.Apply(ingress)
		kube.ClearActions()
		change("store.example.com")
		time.Sleep(time.Second)
		expect("in conflict", "shop.example.com", website.Pending)
		if n := len(kube.Actions()); n < 2 {
			t.Errorf("%d attempts in a second, want several", n)
		}
		ingresses.SetFaults(informertest.Faults{})
		time.Sleep(time.Minute)
		expect("after the conflict", "store.example.com", website.Pending)

		// The connection breaks and the watch has expired. Meanwhile the Ingress is deleted by
		// hand.
		ingresses.Fail("watch", syscall.ECONNREFUSED, 3)
		ingresses.Expire()
		if _, err := ingresses.Delete(shopKey); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		expect("after the outage", "store.example.com", website.Pending)

		// The operator is restarted, and handles the changes since then.
		stop()
		change("new.example.com")
		ingress, err = ingresses.Get(shopKey)
		if err != nil {
			t.Fatal(err)
		}
		ingresses.Apply(online(ingress))
		stop = start(t, sites, kube)
		expect("after a restart", "new.example.com", website.Online)
		stop()
	})
}
