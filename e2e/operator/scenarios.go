package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	netv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/customcacheinformer/informer/e2e/operator/internal/cluster"
	"github.com/customcacheinformer/informer/examples/operator/website"
)

// converge creates Websites, and gives each Ingress an address as soon as it exists.
func (w *world) converge(ctx context.Context, names ...string) error {
	if err := w.CreateSites(ctx, w.keys(names)); err != nil {
		return err
	}
	if err := w.allSettled(ctx, names, website.Pending); err != nil {
		return err
	}
	if err := cluster.Each(w.keys(names), func(key types.NamespacedName) error { return w.route(ctx, key) }); err != nil {
		return err
	}
	return w.allSettled(ctx, names, website.Online)
}

// recreate deletes the Ingress of a Website by hand, and waits for a new one.
func (w *world) recreate(ctx context.Context, name string) error {
	_, old, err := w.settled(ctx, name, cluster.Host(w.key(name)), website.Online)
	if err != nil {
		return err
	}
	if err := w.Kube.NetworkingV1().Ingresses(w.namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := w.replaced(ctx, old); err != nil {
		return err
	}
	return w.allSettled(ctx, []string{name}, website.Pending) // the new Ingress has no address
}

// replaced waits until a new Ingress has taken the place of old.
func (w *world) replaced(ctx context.Context, old *netv1.Ingress) error {
	err := w.Ingresses.WaitFor(ctx, w.key(old.Name), func(obj *netv1.Ingress, exists bool) bool {
		return exists && obj.UID != old.UID
	})
	if err != nil {
		return fmt.Errorf("the Ingress %s does not come back: %w\n%s", old.Name, err, w.operator.Log)
	}
	return nil
}

// crash creates Websites, and kills the operator just before its creation of Ingress number
// len(names)/2 reaches the API server. It deletes an Ingress while no operator runs. Then it
// starts the operator again, and waits until all work is done. It returns the number of
// Ingresses that existed in between.
func (w *world) crash(ctx context.Context, names []string) (done int, err error) {
	if err := w.inTheMiddle(ctx, names, w.operator.Kill); err != nil {
		return 0, err
	}
	ingresses := w.Kube.NetworkingV1().Ingresses(w.namespace)
	list, err := ingresses.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	of := sets.New(names...)
	list.Items = slices.DeleteFunc(list.Items, func(ingress netv1.Ingress) bool { return !of.Has(ingress.Name) })
	if done = len(list.Items); done == 0 {
		return 0, errors.New("the operator was killed before it did anything")
	}
	if err := ingresses.Delete(ctx, list.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		return done, err
	}
	if err := w.start(ctx); err != nil {
		return done, err
	}
	return done, errors.Join(w.allSettled(ctx, names, website.Pending), w.replaced(ctx, &list.Items[0]))
}

// interrupt is like crash, but asks the operator to stop and measures how long that takes.
func (w *world) interrupt(ctx context.Context, names []string) (time.Duration, error) {
	var took time.Duration
	var stopped error
	err := w.inTheMiddle(ctx, names, func() {
		begun := time.Now()
		stopped = w.operator.Stop(ctx)
		took = time.Since(begun)
	})
	if err != nil {
		return 0, err // the function may still run
	}
	if stopped != nil {
		return took, stopped
	}
	if err := w.start(ctx); err != nil {
		return took, err
	}
	return took, w.allSettled(ctx, names, website.Pending)
}

// inTheMiddle creates Websites, and calls do just before the operator's creation of Ingress number len(names)/2
// reaches the API server. It returns when do has returned.
func (w *world) inTheMiddle(ctx context.Context, names []string, do func()) error {
	var count atomic.Int64
	done := make(chan struct{})
	w.meddle(func(verb, resource, _ string) {
		if verb == http.MethodPost && resource == "ingresses" && count.Add(1) == int64(len(names)/2) {
			do()
			close(done)
		}
	})
	if err := w.CreateSites(ctx, w.keys(names)); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the operator does not get that far: %w\n%s", context.Cause(ctx), w.operator.Log)
	}
}

// conflict moves Websites to other hosts, and then gives them addresses. After each of these
// changes, another client annotates each Website and each Ingress just before the operator
// writes it for the first time. conflict returns the number of refused writes, and fails if an
// annotation is lost.
func (w *world) conflict(ctx context.Context, names []string) (refused int, err error) {
	was := w.front.Calls().Conflicts()
	defer w.before.Store(nil)
	host := func(key types.NamespacedName) string { return "new." + cluster.Host(key) }

	w.getAhead(ctx, "web")
	if err := w.MoveSites(ctx, w.keys(names), host); err != nil {
		return 0, err
	}
	if err := w.annotated(ctx, names, host, website.Pending, "web", "web"); err != nil {
		return 0, err
	}
	// The operator learns of the address only from the Ingress. Nothing notifies it of the
	// annotations: it ignores what others write to a Website.
	w.getAhead(ctx, "network")
	if err := cluster.Each(w.keys(names), func(key types.NamespacedName) error { return w.route(ctx, key) }); err != nil {
		return 0, err
	}
	err = w.annotated(ctx, names, host, website.Online, "network", "web")
	return w.front.Calls().Conflicts() - was, err
}

// getAhead makes another client annotate each object just before the operator writes it for the
// first time from now on.
func (w *world) getAhead(ctx context.Context, team string) {
	var met sync.Map
	w.meddle(func(verb, resource, name string) {
		if verb != http.MethodPut {
			return
		}
		if _, again := met.LoadOrStore(resource+name, true); again {
			return
		}
		of := website.Resource
		if resource == "ingresses" {
			of = cluster.Ingresses
		}
		// If this fails, annotated notices that the annotation is missing.
		_ = w.Patch(ctx, of, w.key(name), fmt.Sprintf(`{"metadata":{"annotations":{"example.com/team":%q}}}`, team))
	})
}

// annotated waits until the Websites have settled, and checks the annotations of the Websites
// and of their Ingresses.
func (w *world) annotated(ctx context.Context, names []string, host func(types.NamespacedName) string, phase website.Phase, onSite, onIngress string) error {
	for _, name := range names {
		site, ingress, err := w.settled(ctx, name, host(w.key(name)), phase)
		if err != nil {
			return err
		}
		if site.Annotations["example.com/team"] != onSite || ingress.Annotations["example.com/team"] != onIngress {
			return fmt.Errorf("annotations are lost: %+v, %+v", site.ObjectMeta, ingress.ObjectMeta)
		}
	}
	return nil
}

// expire makes a Website expire in about two seconds, and waits until the operator has handled
// that.
func (w *world) expire(ctx context.Context, name string) error {
	expires := metav1.NewTime(time.Now().Add(2 * time.Second)).Rfc3339Copy() // has full seconds only
	patch := fmt.Sprintf(`{"spec":{"expires":%q}}`, expires.UTC().Format(time.RFC3339))
	if err := w.Patch(ctx, website.Resource, w.key(name), patch); err != nil {
		return err
	}
	if _, _, err := w.settled(ctx, name, cluster.Host(w.key(name)), website.Expired); err != nil {
		return err
	}
	if early := time.Until(expires.Time); early > 0 {
		return fmt.Errorf("%s was taken down %v too early", name, early)
	}
	return nil
}
