// Package storetest checks whether a store meets an informer's requirements on
// informer.Options.Store. Call [Run] from a test of the store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) cache.Store { return mystore.New(t.TempDir()) }, storetest.Options{})
//	}
//
// The checks depend on the interfaces of the store. Every store is checked for the
// requirements of cache.Store and informer.Options.Store; a cache.Indexer, an informer.Scanner
// and an informer.Durable also for those of that interface. The checks of an interface that
// the store lacks are skipped, and the message says which disadvantage an informer has without
// it. A store that has only some of the methods of an interface fails. A Durable needs
// [Options.Reopen], and should have [Options.Crash]:
//
//	storetest.Options{
//		Reopen: func(t *testing.T, s cache.Store) cache.Store {
//			old := s.(*mystore.Store)
//			old.Close()
//			return mystore.New(old.Dir())
//		},
//	}
//
// Each requirement is a subtest. If it fails, it says why an informer has the requirement. The
// suite does not check a process that is killed in the middle of a call. Run the tests with
// -race: some checks use the store from several goroutines.
package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/customcacheinformer/informer"
)

// Run checks the stores that newStore returns, in subtests of t. newStore is called for each
// subtest and returns an empty store; to clean up, use t.Cleanup of the t that newStore is
// given. Run blocks until all checks have ended. Without -short it takes some seconds, and
// longer if a write is slow, since there are some ten thousand writes. With -race it takes
// several times as long.
func Run(t *testing.T, newStore func(t *testing.T) cache.Store, opts Options) {
	t.Helper()
	if opts.Object == nil {
		t.Cleanup(func() {
			if t.Failed() {
				t.Log("Options.Object is nil: if the store takes only objects of one type, set it")
			}
		})
		opts.Object = func(namespace, name string) informer.AnyObject {
			return &metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			}
		}
	}
	if opts.Kept == nil {
		opts.Kept = func(obj informer.AnyObject) informer.AnyObject { return obj }
	}
	s := &suite{Options: opts, newStore: newStore}
	s.group(t, "Store", "", storeChecks)
	s.group(t, "Indexer", notIndexer, indexerChecks)
	s.group(t, "Scanner", notScanner, scannerChecks)
	s.group(t, "Durable", notDurable, durableChecks)
}

const (
	notIndexer = "The store is no cache.Indexer: the informer keeps indexes of its own in memory, of keys and values only, and fills them at the start."
	notScanner = "The store is no informer.Scanner: the informer reads it by List, which holds all objects at once and cannot return an error, so that an unreadable store looks like an empty one."
	notDurable = "The store is no informer.Durable: a restart lists everything again, and a delete that some watcher did not get before the process ended is told only if the store still holds the object."
)

// group runs the checks of one interface if the store has it. without says what a store loses
// without the interface; if without is empty, all stores must pass.
func (s *suite) group(t *testing.T, name, without string, checks []check) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		claims, wrong := claim(name, s.newStore(t))
		switch {
		case wrong != "":
			t.Fatal(wrong)
		case !claims:
			t.Skip(without)
		case name == "Durable" && s.Reopen == nil:
			t.Fatal("Options.Reopen is nil: without it the main purpose of a Durable cannot be checked")
		}
		for _, check := range checks {
			t.Run(check.name, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Log("Why: " + check.why)
					}
				}()
				check.run(newChecker(t, s))
			})
		}
	})
}

// claim reports whether a store has the interface of a group. wrong describes a store that has
// only a part of the interface, which an informer would silently not use.
func claim(group string, store cache.Store) (claims bool, wrong string) {
	switch group {
	case "Indexer":
		_, claims = store.(cache.Indexer)
	case "Scanner":
		if _, claims = store.(informer.Scanner); !claims {
			wrong = halfMade(store, "informer.Scanner", reflect.TypeFor[informer.Scanner]())
		}
	case "Durable":
		if _, claims = store.(informer.Durable); !claims {
			wrong = halfMade(store, "informer.Durable", reflect.TypeFor[informer.Durable]())
		}
	default:
		claims = true
	}
	return claims, wrong
}

// halfMade describes the methods of an interface that a store lacks, if the store has some of
// them beyond those of every store. A correct Scan alone is a Scanner, and is no sign of an
// incomplete Durable.
func halfMade(store cache.Store, name string, of reflect.Type) string {
	var has, lacks []string
	plain := reflect.TypeFor[cache.Store]()
	for i := range of.NumMethod() {
		want := of.Method(i)
		if _, common := plain.MethodByName(want.Name); common {
			continue
		}
		got := reflect.ValueOf(store).MethodByName(want.Name)
		right := got.IsValid() && got.Type() == want.Type
		if !right {
			lacks = append(lacks, want.Name+strings.TrimPrefix(want.Type.String(), "func"))
		}
		if got.IsValid() && (want.Name != "Scan" || !right) {
			has = append(has, want.Name)
		}
	}
	if len(has) == 0 {
		return ""
	}
	return fmt.Sprintf("%T has a method %s, but it is no %s, and an informer would silently not use it as one: it lacks %s",
		store, strings.Join(has, ", "), name, strings.Join(lacks, ", "))
}
