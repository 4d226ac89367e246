package informer_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/customcacheinformer/informer"
)

// Each of these tests shows a trap of client-go's SharedInformerFactory, and shows that a
// Group does not have it. A test fails if client-go no longer has its trap.

// newFactory returns a factory and the ctx to start it with. The factory stops when the test
// ends.
func newFactory(t *testing.T, client kubernetes.Interface) (informers.SharedInformerFactory, context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	factory := informers.NewSharedInformerFactory(client, 0)
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	return factory, ctx
}

// sharedMaps returns the informer for the config maps of client that is shared in g.
func sharedMaps(t *testing.T, g *informer.Group, client kubernetes.Interface) *ci {
	t.Helper()
	inf, err := informer.GetOrAdd(g, "", func() (*ci, error) {
		return informer.New(client.CoreV1().ConfigMaps(""), options{})
	})
	if err != nil {
		t.Fatal(err)
	}
	return inf
}

func TestTrapWaitingReturnsBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(object("a", "1"))

		factory, ctx := newFactory(t, client)
		theirs := factory.Core().V1().ConfigMaps().Informer()
		late := make(chan struct{})
		started := make(chan struct{})
		go func() { // like: go factory.Start(ctx.Done())
			defer close(started)
			<-late
			factory.Start(ctx.Done())
		}()
		if synced := factory.WaitForCacheSync(ctx.Done()); len(synced) > 0 || theirs.HasSynced() {
			t.Errorf("client-go: waiting says %v before Start, synced %v", synced, theirs.HasSynced())
		}
		close(late)
		<-started

		g := newGroup(t)
		ours := sharedMaps(t, g, client)
		synced := asking(func() error { return g.WaitForSync(t.Context()) })
		pending(t, "WaitForSync", synced)
		time.Sleep(time.Hour)
		pending(t, "WaitForSync", synced)
		stop := startGroup(t, g) // also starts late
		if err := <-synced; err != nil || !ours.HasSynced() {
			t.Errorf("WaitForSync: %v", err)
		}
		mustStop(t, stop)
	})
}

func TestTrapAnInformerThatIsFirstAskedForAfterTheStartStaysEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(object("a", "1"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})

		factory, ctx := newFactory(t, client)
		factory.Core().V1().Pods().Informer()
		factory.Start(ctx.Done())
		theirs := factory.Core().V1().ConfigMaps().Lister()
		result := factory.WaitForCacheSyncWithContext(ctx)
		if err := result.AsError(); err != nil || len(result.Synced) != 1 {
			t.Errorf("client-go: waiting says %v, %v", result.Synced, err)
		}
		count := func() int {
			sleepBubble(time.Hour)
			all, err := theirs.List(labels.Everything())
			if err != nil {
				t.Error(err)
			}
			return len(all)
		}
		if n := count(); n != 0 {
			t.Errorf("client-go: the lister has %d objects without another Start", n)
		}
		factory.Start(ctx.Done())
		if n := count(); n != 1 {
			t.Errorf("client-go: the lister has %d objects after another Start", n)
		}

		g := newGroup(t)
		stop := startGroup(t, g)
		ours := sharedMaps(t, g, client)
		mustSync(t, g)
		if all, err := ours.List("", nil); len(all) != 1 || err != nil {
			t.Errorf("List: %v, %v", all, err)
		}
		mustStop(t, stop)
	})
}

func TestTrapWaitingDoesNotSayWhyAKindCannotSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, forbidden("configmaps")
		})

		factory, ctx := newFactory(t, client)
		factory.Core().V1().ConfigMaps().Informer()
		factory.Start(ctx.Done())
		err := factory.WaitForCacheSyncWithContext(within(t, time.Minute)).AsError()
		if err == nil || !strings.Contains(err.Error(), "ConfigMap") {
			t.Errorf("client-go: waiting says %v", err)
		}
		if apierrors.IsForbidden(err) || strings.Contains(err.Error(), "forbidden") {
			t.Errorf("client-go: waiting says why: %v", err)
		}

		g := informer.Group{ErrorHandler: func(context.Context, error) {}}
		sharedMaps(t, &g, client)
		stop := startGroup(t, &g)
		err = g.WaitForSync(within(t, time.Minute))
		mustBeLate(t, err, "ConfigMap: the first list")
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no such role") {
			t.Errorf("WaitForSync: %v", err)
		}
		mustStop(t, stop)
	})
}
