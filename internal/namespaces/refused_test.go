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

// A batch that the store refuses is applied again in halves. The bookmark of the first half must
// not have the versions of the second: the process may end between the two.
func TestTheBookmarkOfAHalfBatchClaimsNoOtherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newServer(object("a", "slow", "0"), object("b", "x", "0")), informertest.NewDurable()
		inf, _ := s.informer(t, options{Durable: store, ErrorHandler: testkit.Ignore}, "a", "b")
		stop := testkit.Start(t, inf)
		time.Sleep(time.Minute)

		hold, applies := holdFirstRefuseSecond(store, func(n int) {
			if n == 4 { // the second half
				store.Crash()
			}
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
		if *applies < 4 {
			t.Fatalf("%d calls of Apply: the batch was not split", *applies)
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

// The store refuses to delete an object of a namespace that leaves. The next start tries again, and so does the first list if
// the namespace returns.
func TestAnObjectThatTheStoreKeepsWhenItsNamespaceLeaves(t *testing.T) {
	for name, returns := range map[string]bool{"restart": false, "return": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, store := newServer(object("a", "x", "1"), object("a", "y", "1"), object("b", "x", "1")), informertest.NewDurable()
				inf, r := s.informer(t, options{Durable: store, ErrorHandler: testkit.Ignore}, "a", "b")
				stop := testkit.Start(t, inf)
				time.Sleep(time.Minute)
				refuses := 2 // the batch, and the half of it with a/x
				store.Fail(func(op, key string) error {
					if op == "apply" && key == "a/x" && refuses > 0 {
						refuses--
						return errRefuses
					}
					return nil
				})
				set(t, inf, "b")
				time.Sleep(time.Minute)
				if _, exists, _ := inf.Get(keyOf("a", "x")); !exists || refuses > 0 {
					t.Fatal("the store has not refused the delete")
				}
				if _, err := s.Delete(keyOf("a", "x")); err != nil {
					t.Fatal(err)
				}
				if returns {
					set(t, inf, "b", "a")
					time.Sleep(time.Minute)
					s.check(t, inf, r, "b", "a")
					return
				}
				stop()
				r, asked := s.run(t, store.Reopen(), "b")
				if got := fmt.Sprint(deletes(r)); got != "[a/x]" || asked["b"] != "0 lists, 1 watches" {
					t.Errorf("deletes: %s, want that of a/x; asked: %v", got, asked)
				}
			})
		})
	}
}

// The items of a batch that the store refuses are applied again. One of them is the leave of a namespace.
func TestANamespaceLeavesInABatchThatTheStoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, store := newServer(object("a", "x", "1"), object("b", "x", "1"), object("b", "y", "1")), informertest.NewDurable()
		inf, r := s.informer(t, options{Durable: store, ErrorHandler: testkit.Ignore}, "a", "b")
		testkit.Start(t, inf)
		time.Sleep(time.Minute)
		hold, applies := holdFirstRefuseSecond(store, func(int) {})
		for n := range 2 {
			s.Apply(object("b", "x", fmt.Sprint("held ", n)))
			s.Apply(object("b", "y", fmt.Sprint("held ", n)))
			synctest.Wait()
		}
		set(t, inf, "b")
		synctest.Wait()
		close(hold)
		time.Sleep(time.Minute)
		synctest.Wait()
		if *applies < 4 {
			t.Errorf("%d calls of Apply: the batch was not split", *applies)
		}
		s.check(t, inf, r, "b")
	})
}

// A namespace leaves and returns while the informer reads its store at the start. It cannot resume then, because its objects
// are deleted, and neither can the next process if this one has not listed it.
func TestANamespaceReturnsWhileTheStoreIsRead(t *testing.T) {
	for name, crashes := range map[string]bool{"and is listed": false, "and is not listed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, store := newServer(object("a", "x", "1"), object("b", "x", "1")), informertest.NewDurable()
				s.run(t, store, "a", "b")
				store = store.Reopen()
				release := store.Hang()
				inf, r := s.informer(t, options{Durable: store}, "a", "b")
				stop := testkit.Start(t, inf)
				s.SetFaults(informertest.Faults{HoldLists: crashes, RejectWatchList: crashes})
				synctest.Wait()
				set(t, inf, "b")
				set(t, inf, "b", "a")
				release()
				time.Sleep(time.Minute)
				if !crashes {
					s.check(t, inf, r, "b", "a")
					return
				}
				s.Apply(object("b", "x", "2"))
				time.Sleep(time.Minute)
				store.Crash()
				stop()
				s.SetFaults(informertest.Faults{})
				s.run(t, store.Reopen(), "b", "a")
			})
		})
	}
}
