package serving

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// refusals counts the answers of 400.
type refusals struct {
	http.RoundTripper
	atomic.Int64
}

func (r *refusals) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := r.RoundTripper.RoundTrip(request)
	if err == nil && answer.StatusCode == http.StatusBadRequest {
		r.Add(1)
	}
	return answer, err
}

// A new informer of client-go asks for the newest state, and for any state when that is refused. After a
// 410 it asks for one that is no older than its own. Only when that state is gone, too, it asks only for the
// newest state, again and again.
func TestAnInformerThatMayNotReadTheNewestStateIsStuckWhenTheStorageGoesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 s: make test-long")
	}
	f := serve(t, func(c *Config) {
		c.RefuseConsistentReads = true
		pods := c.Resources[0].Storage.(*memory)
		c.Resources[0].Reached = func(_ context.Context, version uint64) (bool, error) {
			now, _ := pods.backup()
			return version <= now, nil
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow := func() (seen, *refusals) {
		count := &refusals{}
		client, err := kubernetes.NewForConfig(&rest.Config{Host: f.url, QPS: -1, WrapTransport: func(to http.RoundTripper) http.RoundTripper {
			count.RoundTripper = to
			return count
		}})
		if err != nil {
			t.Fatal(err)
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		t.Cleanup(factory.Shutdown)
		events := make(seen, 100)
		if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(events); err != nil {
			t.Fatal(err)
		}
		factory.Start(ctx.Done())
		return events, count
	}
	f.pods.set(t, pod("a", "n1"))
	version, objects := f.pods.backup()
	events, refused := follow()
	events.expect(t, "add a")
	if refused.Load() == 0 {
		t.Error("the newest state was not refused")
	}

	before := refused.Load()
	f.pods.relist() // 410 for the informer's version
	f.waitUntilReady(t)
	f.pods.set(t, pod("b", "n1"))
	// The list may bring both Pods, in any order.
	for got := ""; got != "add b"; {
		select {
		case got = <-events:
		case <-time.After(patience):
			t.Fatal("the informer does not deliver the object that was added after the 410")
		}
	}
	if n := refused.Load() - before; n != 0 {
		t.Errorf("after a 410, %d reads were refused", n)
	}

	f.pods.restore(version, objects)
	before = refused.Load()
	// In real time, because requests over HTTP do not run in a bubble.
	for end := time.Now().Add(patience); refused.Load() < before+4; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the informer does not ask for the newest state")
		}
	}
	for len(events) > 0 {
		if got := <-events; got == "delete b" {
			t.Error("the informer delivers a delete of b, although its reads are refused")
		}
	}
	fresh, _ := follow()
	fresh.expect(t, "add a")
}
