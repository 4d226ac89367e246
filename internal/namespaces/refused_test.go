package namespaces_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/customcacheinformer/informer"
	"github.com/customcacheinformer/informer/informertest"
	"github.com/customcacheinformer/informer/internal/testkit"
)

var errRefuses = fmt.Errorf("the store refuses it: %w", informer.ErrPermanent)

// A batch that the store refuses is applied again in halves. The bookmark of the first half must
// not have the versions of the second: the process may end between the two.
func TestTheBookmarkOfAHalfBatchClaimsNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newServer(object("a", "slow", "0"), object("b", "x", "0")), informertest.NewDurable()
		inf, _ := s.informer(t, options{Durable: store, ErrorHandler: testkit.Ignore}, "a", "b")
		stop := testkit.Start(t, inf)
		time.Sleep(time.Minute)

		hold, applies := make(chan struct{}), 0
		store.Fail(func(op, _ string) error {
			if op != "apply" {
				return nil
			}
			switch applies++; applies {
			case 1:
				<-hold
			case 2:
				return errRefuses
			case 4: // the second half
				store.Crash()
			}
			return nil
		})
		s.Apply(object("a", "slow", "1"))
		synctest.Wait()
		for n := range 4 {
			s.Apply(object("a", fmt.Sprint("x", n), "1"))
			synctest.Wait()
		}
		for n := range 3 {
			s.Apply(object("b", fmt.Sprint("x", n), "1"))
			synctest.Wait()
		}
		if _, err := s.Delete(keyOf("b", "x")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(hold)
		time.Sleep(time.Minute)
		stop()
		if applies < 4 {
			t.Fatalf("%d calls of Apply: the batch was not split", applies)
		}

		s.run(t, store.Reopen(), "a", "b") // checks the store and the watcher
	})
}

// An object of a namespace that is no longer wanted, and that the store refuses to delete, is
// not forgotten: the next start tries again.
func TestAForeignObjectThatTheStoreKeepsIsDeletedAtTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newServer(object("a", "x", "1"), object("a", "y", "1"), object("b", "x", "1")), informertest.NewDurable()
		s.run(t, store, "a", "b")

		store = store.Reopen()
		refuses := 2 // the batch, and the half of it with a/x
		store.Fail(func(op, key string) error {
			if op == "apply" && key == "a/x" && refuses > 0 {
				refuses--
				return errRefuses
			}
			return nil
		})
		errs := &testkit.ErrorLog{}
		inf, _ := s.informer(t, options{Durable: store, ErrorHandler: errs.Handle}, "b")
		stop := testkit.Start(t, inf)
		time.Sleep(time.Minute)
		stop()
		if got := errs.Take(); len(got) != 1 {
			t.Errorf("reported: %v", got)
		}

		store = store.Reopen()
		r, _ := s.run(t, store, "b")
		if got := fmt.Sprint(deletes(r)); got != "[a/x]" {
			t.Errorf("deletes: %s, want that of a/x", got)
		}
		if _, asked := s.run(t, store.Reopen(), "b"); fmt.Sprint(asked) != "map[b:0 lists, 1 watches]" {
			t.Errorf("the next start has asked: %v", asked)
		}
	})
}
