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

// holdFirstRefuseSecond has a store hold its next Apply until hold is closed, and refuse the one after it. It counts the
// calls, and calls later for those that follow.
func holdFirstRefuseSecond(store *testkit.Durable, later func(n int)) (hold chan struct{}, applies *int) {
	hold, applies = make(chan struct{}), new(int)
	store.Fail(func(op, _ string) error {
		if op != "apply" {
			return nil
		}
		switch *applies++; *applies {
		case 1:
			<-hold
		case 2:
			return errRefuses
		default:
			later(*applies)
		}
		return nil
	})
	return hold, applies
}

// keepX makes a store refuse to delete a/x: the batch with it, and the half of that batch.
func keepX(store *testkit.Durable) (refuses *int) {
	refuses = new(int)
	*refuses = 2
	store.Fail(func(op, key string) error {
		if op == "apply" && key == "a/x" && *refuses > 0 {
			*refuses--
			return errRefuses
		}
		return nil
	})
	return refuses
}

// A batch that the store refuses is applied again in halves. The bookmark of the first half must
// not have the versions of the second: the process may end between the two.
func TestTheBookmarkOfAHalfBatchClaimsNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "slow", "0"), object("b", "x", "0"))
		inf := s.informer(t, options{Durable: s.store, ErrorHandler: testkit.Ignore}, "a", "b")
		inf.start(time.Minute)
		hold, applies := holdFirstRefuseSecond(s.store, func(n int) {
			if n == 4 { // the second half
				s.store.Crash()
			}
		})
		for _, obj := range []configMap{
			object("a", "slow", "1"),
			object("a", "x0", "1"), object("a", "x1", "1"), object("a", "x2", "1"), object("a", "x3", "1"),
			object("b", "x0", "1"), object("b", "x1", "1"), object("b", "x2", "1"),
		} {
			s.Apply(obj)
			synctest.Wait()
		}
		_, _ = s.Delete(keyOf("b", "x"))
		synctest.Wait()
		close(hold)
		time.Sleep(time.Minute)
		inf.stop()
		testkit.AtLeast(t, "calls of Apply, of which two were for halves of the batch", *applies, 4)
		s.run(t, "a", "b")
	})
}

// An object of a namespace that is no longer wanted, and that the store refuses to delete, is
// not forgotten: the next start tries again.
func TestAForeignObjectThatTheStoreKeepsIsDeletedAtTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"), object("a", "y", "1"), object("b", "x", "1"))
		s.run(t, "a", "b")
		keepX(s.reopen())
		var errs testkit.ErrorLog
		inf := s.informer(t, options{Durable: s.store, ErrorHandler: errs.Handle}, "b")
		inf.start(time.Minute)
		inf.stop()
		equal(t, "reports", len(errs.Take()), 1)
		equal(t, "deletes", deletes(s.run(t, "b").recorder), "[a/x]")
		s.run(t, "b")
		equal(t, "the next start has asked", s.asked(), "map[b:0 lists, 1 watches]")
	})
}

// The store refuses to delete an object of a namespace that leaves. The next start tries again, and so does the first list if
// the namespace returns.
func TestAnObjectThatTheStoreKeepsWhenItsNamespaceLeaves(t *testing.T) {
	for name, returns := range map[string]bool{"restart": false, "return": true} {
		inBubble(t, name, func(t *testing.T) {
			s := newServer(object("a", "x", "1"), object("a", "y", "1"), object("b", "x", "1"))
			inf := s.informer(t, options{Durable: s.store, ErrorHandler: testkit.Ignore}, "a", "b")
			inf.start(time.Minute)
			refuses := keepX(s.store)
			inf.set("b")
			time.Sleep(time.Minute)
			if _, exists, _ := inf.Get(keyOf("a", "x")); !exists || *refuses > 0 {
				t.Fatal("the store has not refused the delete")
			}
			_, _ = s.Delete(keyOf("a", "x"))
			if returns {
				inf.set("b", "a")
				inf.checkAfter(time.Minute, "b", "a")
				return
			}
			inf.stop()
			equal(t, "deletes", deletes(s.run(t, "b").recorder), "[a/x]")
			equal(t, "asked", s.asked(), "map[b:0 lists, 1 watches]")
		})
	}
}

// The items of a batch that the store refuses are applied again. One of them is the leave of a namespace.
func TestANamespaceLeavesInABatchThatTheStoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(object("a", "x", "1"), object("b", "x", "1"), object("b", "y", "1"))
		inf := s.informer(t, options{Durable: s.store, ErrorHandler: testkit.Ignore}, "a", "b")
		inf.start(time.Minute)
		hold, applies := holdFirstRefuseSecond(s.store, func(int) {})
		for n := range 2 {
			s.Apply(object("b", "x", fmt.Sprint("held ", n)))
			s.Apply(object("b", "y", fmt.Sprint("held ", n)))
			synctest.Wait()
		}
		inf.set("b")
		synctest.Wait()
		close(hold)
		inf.checkAfter(time.Minute, "b")
		testkit.AtLeast(t, "calls of Apply, of which two were for halves of the batch", *applies, 4)
	})
}

// A namespace leaves and returns while the informer reads its store at the start. It cannot resume then, because its objects
// are deleted, and neither can the next process if this one has not listed it.
func TestANamespaceReturnsWhileTheStoreIsRead(t *testing.T) {
	for name, crashes := range map[string]bool{"and is listed": false, "and is not listed": true} {
		inBubble(t, name, func(t *testing.T) {
			s := newServer(object("a", "x", "1"), object("b", "x", "1"))
			s.run(t, "a", "b")
			release := s.reopen().Hang()
			inf := s.informer(t, options{Durable: s.store}, "a", "b")
			inf.start(0)
			s.SetFaults(informertest.Faults{HoldLists: crashes, RejectWatchList: crashes})
			synctest.Wait()
			inf.set("b")
			inf.set("b", "a")
			release()
			if !crashes {
				inf.checkAfter(time.Minute, "b", "a")
				return
			}
			time.Sleep(time.Minute)
			s.Apply(object("b", "x", "2"))
			time.Sleep(time.Minute)
			s.store.Crash()
			inf.stop()
			s.SetFaults(informertest.Faults{})
			s.run(t, "b", "a")
		})
	}
}
