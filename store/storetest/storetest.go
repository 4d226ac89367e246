// Package storetest checks whether a store can be given to an informer, as
// informer.Options.Store. [Run] is called from a test of the store:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) cache.Store { return mystore.New(t.TempDir()) }, storetest.Options{})
//	}
//
// A store is checked for what it claims to be: every store for what cache.Store and
// informer.Options.Store ask, a cache.Indexer, an informer.Scanner and an
// informer.Durable for that too. What it does not claim is skipped, and the skip says
// what an informer over it does without; to have a part of the methods that it takes
// is a failure. A Durable needs [Options.Reopen], and should be given [Options.Crash]:
//
//	storetest.Options{
//		Reopen: func(t *testing.T, s cache.Store) cache.Store {
//			old := s.(*mystore.Store)
//			old.Close()
//			return mystore.New(old.Dir())
//		},
//	}
//
// Each requirement is a subtest. One that fails says what an informer needs it for. What
// becomes of a call in the middle of which the process is killed is not checked.
// Run the tests with -race: some checks use the store from several goroutines.
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

// Options says what Run cannot know of a store. The zero value is right for a store
// that takes any object and does not outlive the process.
type Options struct {
	// Object returns a new object of the type that the store keeps, with that
	// namespace, "" for cluster-scoped, and name. The suite sets the rest of the
	// metadata; put something into the rest of the object, or nobody will notice that
	// the store drops it. A store that decodes what it keeps needs it. Defaults to a
	// *metav1.PartialObjectMetadata.
	Object func(namespace, name string) informer.AnyObject

	// Kept returns what the store keeps of an object, which it must not change: the
	// object itself, or another that has less. Namespace, name, UID and
	// resourceVersion must be kept. Defaults to all of it.
	Kept func(informer.AnyObject) informer.AnyObject

	// Reopen closes a store as a program does that ends well, and opens what it
	// left. The store that it is given is not used any more. It must be set for a
	// Durable.
	Reopen func(t *testing.T, s cache.Store) cache.Store

	// Crash leaves a store as a process does that is killed, without closing it, and
	// opens what is left. Nothing is under way in the store, which is not used any
	// more. If it is nil, what a crash leaves is not checked.
	Crash func(t *testing.T, s cache.Store) cache.Store

	// LosesLast says that a crash may take the last calls along, which an informer
	// can do with, as long as what is left is a whole earlier state; see
	// informer.Durable for what it misses then. By default
	// everything must be there for which a call has returned.
	LosesLast bool

	// Seed makes the random histories others than those of the default, 0.
	Seed uint64
}

// Run checks the stores that newStore returns, in subtests of t. newStore is called
// for each of them and returns an empty store; to clean up after it, use t.Cleanup of
// the t that it is given. Run blocks until all checks have ended. Without -short it
// takes some seconds, more if a write takes long: there are some ten thousand; and with
// -race several times as long.
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

// suite is one call of Run.
type suite struct {
	Options
	newStore func(t *testing.T) cache.Store
}

// check is one requirement.
type check struct {
	name string
	why  string // what an informer needs it for
	run  func(c *checker)
}

const (
	notIndexer = "The store is no cache.Indexer: the informer keeps its own indexes of it in memory, keys and values only, and fills them at the start."
	notScanner = "The store is no informer.Scanner: the informer reads it by List, which holds all objects at once and cannot say that it has failed, so that a store which cannot be read passes for an empty one."
	notDurable = "The store is no informer.Durable: a restart lists everything again, and a delete that some watcher was not told of before the process ended is told only if the store still holds the object."
)

// group runs checks that are for stores that claim something. without says what it
// means not to; if it is empty, all stores must pass.
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
			t.Fatal("Options.Reopen is nil: set it, or what a Durable is for cannot be checked")
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

// claim reports whether a store is what the group of that name is for. It says in
// words what is wrong with one that an informer would silently take for less than it
// was meant to be.
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

// halfMade says what a store lacks of an interface, if it has something of it beyond
// what every store has. A Scan as it should be is something by itself.
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
	return fmt.Sprintf("%T has a method %s, but it is no %s, and an informer would silently not take it for one: it lacks %s",
		store, strings.Join(has, ", "), name, strings.Join(lacks, ", "))
}
