package chaos_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
)

// TestHealthIsWellAfterAWarmStart starts over a Durable. The first request fails and the
// second succeeds.
func TestHealthIsWellAfterAWarmStart(t *testing.T) {
	k, src := allKinds()[0], informertest.NewSource[object]()
	store := informertest.NewDurable()
	for round := range 2 {
		inf, err := informer.NewFrom(src, options{Durable: store, ErrorHandler: func(context.Context, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			src.Fail("list", errors.New("not now"), 1)
		}
		stop := informertest.Run(t, inf)
		obj, err := src.Create(k.object("one", round, int64(round)))
		if err != nil {
			t.Fatal(err)
		}
		key := types.NamespacedName{Namespace: "one", Name: obj.GetName()}
		if err := inf.WaitFor(t.Context(), key, func(_ object, exists bool) bool { return exists }); err != nil {
			t.Fatal(err)
		}
		if h := inf.Health(); h.SourceError != nil {
			t.Errorf("start %d: synced and got changes, but Health has the error %v", round, h.SourceError)
		}
		stop()
		store = store.Reopen()
	}
}

// TestListsInPagesAreNotOfThePast restarts the API server. Its watch cache then lacks the
// version up to which an informer with a PageSize has watched.
func TestListsInPagesAreNotOfThePast(t *testing.T) {
	w := newWorld(t)
	w.follow(scope{name: paged, resource: w.kinds[0].resource()}, options{PageSize: 50, WatchList: informer.WatchListOff}).start()
	random := rand.New(rand.NewPCG(1, 6))
	w.play(fault{"none", func(*episode) {}, nil}, random)
	w.play(fault{"API server restarted", (*episode).restart, everybody}, random)
}
