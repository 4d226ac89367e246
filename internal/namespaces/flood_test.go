package namespaces_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// slow is a store in which each write takes a millisecond.
type slow struct{ cache.Store }

func (s slow) Add(obj any) error {
	time.Sleep(time.Millisecond)
	return s.Store.Add(obj)
}

func (s slow) Update(obj any) error {
	time.Sleep(time.Millisecond)
	return s.Store.Update(obj)
}

// flood makes changes until a namespace has far more of them than may wait.
func flood(s *server, namespaces ...string) {
	for n := range 1500 {
		for _, namespace := range namespaces {
			s.Apply(object(namespace, fmt.Sprint("o", n%7), fmt.Sprint(n)))
		}
	}
}

// took makes a change in a namespace, and returns when its event comes.
func (r *reader) took(namespace string) time.Duration {
	begun := time.Now()
	obj := r.s.Apply(object(namespace, "x", fmt.Sprint(begun.UnixNano())))
	for time.Since(begun) < time.Minute {
		if known := r.View()[keyOf(namespace, "x")]; known != nil && known.ResourceVersion == obj.ResourceVersion {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begun)
}

func TestANamespaceThatFloodsHoldsUpNoOther(t *testing.T) {
	testkit.EachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		s := newServer(object("quiet", "x", "1"))
		inf := s.informer(t, options{Queue: queue, Store: slow{cache.NewStore(cache.MetaNamespaceKeyFunc)}}, "flood", "quiet")
		inf.start(time.Second)
		flood(s, "flood")
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		testkit.AtMost(t, "changes of one namespace that wait", inf.Health().Queued, 256)
		testkit.AtMost(t, "the way of another event, with 256 changes of 1 ms before it", inf.took("quiet"), 300*time.Millisecond)
		inf.checkAfter(time.Minute, "flood", "quiet")
	})
}

// A Durable takes 1,000 changes at once.
func TestANamespaceThatFloodsADurableFillsABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		inf := s.informer(t, options{Durable: s.store}, "flood", "quiet")
		inf.start(time.Second)
		release := s.store.Hang()
		flood(s, "flood")
		time.Sleep(time.Second)
		equal(t, "changes that wait", inf.Health().Queued, 1000)
		release()
	})
}

func TestNamespacesThatFloodTakeTurns(t *testing.T) {
	testkit.EachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		var floods []string
		for n := range 20 {
			floods = append(floods, fmt.Sprintf("flood-%02d", n))
		}
		s := newServer(object("quiet", "x", "1"))
		inf := s.informer(t, options{Queue: queue, Store: slow{cache.NewStore(cache.MetaNamespaceKeyFunc)}}, append(floods, "quiet")...)
		inf.start(time.Second)
		flood(s, floods...)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		testkit.AtMost(t, "changes that wait", inf.Health().Queued, 2000)
		testkit.AtMost(t, "the way of an event, with 2,000 changes of 1 ms before it", inf.took("quiet"), 2100*time.Millisecond)
		handled := map[string]int{}
		for _, e := range inf.Events() {
			handled[e.Key().Namespace]++
		}
		for _, namespace := range floods {
			if n := handled[namespace]; n < 450 || n > 800 {
				t.Errorf("%d events of %s came, of about 12,000 of 20 namespaces: %v", n, namespace, handled)
			}
		}
		inf.checkAfter(10*time.Minute, append(floods, "quiet")...)
	})
}
