package restart_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

// ownKeys is a store with UIDs as keys. The first get after an add fails.
type ownKeys struct {
	cache.Store
	added, failed bool
}

func (s *ownKeys) Add(obj any) error {
	s.added = true
	return s.Store.Add(obj)
}

func (s *ownKeys) GetByKey(key string) (any, bool, error) {
	if s.added && !s.failed {
		s.failed = true
		return nil, false, errDown
	}
	return s.Store.GetByKey(key)
}

type blindDurable struct{ *informertest.Durable }

func (blindDurable) Get(context.Context, string) (informer.AnyObject, bool, error) {
	return nil, false, nil
}

func TestAStoreThatDoesNotFindItsObjectsEndsRun(t *testing.T) {
	byUID := func(failed bool) *ownKeys {
		return &ownKeys{Store: cache.NewStore(func(obj any) (string, error) { return string(obj.(configMap).UID), nil }), failed: failed}
	}
	for name, newStore := range map[string]func() options{
		"an empty store":           func() options { return options{Store: byUID(true)} },
		"the first get fails once": func() options { return options{Store: byUID(false)} },
		"a durable store":          func() options { return options{Durable: blindDurable{informertest.NewDurable()}} },
		"a store that has an object": func() options {
			store := byUID(true)
			_ = store.Add(informertest.NewSource(object("old", "1")).Objects()[0])
			return options{Store: store}
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			var errs errorLog
			var told recorder
			opts := newStore()
			opts.DrainTimeout, opts.ErrorHandler = time.Second, errs.Handle
			inf := newInformer(t, informertest.NewSource(objects("a", "b", "c")...), opts)
			other := newInformer(t, informertest.NewSource(object("a", "1")), options{Name: "other"})
			addWatcher(t, inf, &told, informer.WatcherOptions{})
			group := &informer.Group{ErrorHandler: ignore}
			must(t, errors.Join(group.Add(inf), group.Add(other)))
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error)
			go func() { ran <- group.Run(ctx) }()
			waits := inf.WaitForSync(within(t, time.Minute))
			together := group.WaitForSync(within(t, time.Minute))
			sleepBubble(time.Minute)
			ready := inf.Health().Ready()
			noError(t, other.Health().Ready())
			cancel()
			for what, err := range map[string]error{"Run": <-ran, "WaitForSync": waits, "WaitForSync of the group": together, "Ready": ready} {
				var failed *informer.StoreError
				if !errors.As(err, &failed) || failed.Op != "get" || !failed.GaveUp {
					t.Errorf("%s: %v", what, err)
				}
				for _, says := range []string{"default/", inf.Health().Store, "MetaNamespaceKeyFunc", "NewSink"} {
					errorSays(t, err, says)
				}
			}
			errorIs(t, ready, informer.ErrStopped)
			errorIs(t, waits, informer.ErrStopped)
			equal(t, "reports", len(errs.Take()), 1)
			if name != "the first get fails once" { // the second object was looked for
				told.Expect(t)
			}
		})
	}
}

func TestAnObjectDeletedInTheSameBatchIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, store := informertest.NewSource[configMap](), &slowDurable{durable: informertest.NewDurable()}
		inf := newInformer(t, src, options{Durable: store})
		start(t, inf)
		synctest.Wait() // the store has the bookmark of the empty list to write
		src.Apply(object("a", "1"))
		_, _ = src.Delete(keyOf("a"))
		sleepBubble(time.Minute)
		src.Apply(object("b", "1"))
		sleepBubble(time.Minute)
		checkStore(t, inf, src)
		testkit.AtMost(t, "batches, if the add and the delete are one", store.calls, 3)
	})
}

func TestAStoreIsNotSuspectedForItsFailures(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		tr := newTrial(t, queue, object("a", "1"))
		tr.answer("get a", nil, errDown) // the second get checks that the object can be found by its key
		tr.answer("get b", nil, errRefuses)
		tr.answer("add c", afterwards{errDown})
		informertest.Run(t, tr.ci)
		tr.expect("added a")
		for _, name := range []string{"b", "c", "d"} {
			tr.src.Apply(object(name, "1"))
			tr.expect("added " + name)
		}
		tr.reported(0, "add c failed")
		tr.relist()
	})
}

func TestARelistFindsTheDeleteOfAnObjectThatTheStoreHasLost(t *testing.T) {
	eachQueue(t, func(t *testing.T, queue informer.QueueKind) {
		tr := newTrial(t, queue, object("a", "1"), object("b", "1"))
		informertest.Run(t, tr.ci)
		tr.expect("added a", "added b")
		_ = tr.store.Delete(tr.src.Objects()[0])
		tr.missed(func() { tr.delete("a") })
		sleepBubble(time.Minute) // a watcher that joins before the relist does not know the object
		tr.expect("deleted a")
	})
}
